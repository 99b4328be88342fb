"""Every page of the documentation works as it stands, in a reader's own folder; every stage has an example."""

import ast
import contextlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import command
import pages
import pytest
import yaml
from command import FORKS
from pages import PAGES, Block

import uio_pipes as uio
from uio_pipes.pipeline import Pipeline

ROOT = Path(__file__).parents[1]
SOURCES = {"list_files", "from_iterable", "mix", "interleave"}
DRAWINGS = sorted((Path(__file__).parents[1] / "docs" / "pictures").glob("*.svg"))
OTHERS = [*PAGES, *sorted(ROOT.glob("recipes/*/*.md")), ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md"]
RUN = {"python", "bash"}
READ = {"", "diff", "yaml"}
BLOCKS = {page: pages.blocks(page) for page in PAGES}
WITH_EXAMPLES = [page for page, found in BLOCKS.items() if any(b.language in RUN and not b.not_run for b in found)]
RUN_HERE = [page for page in WITH_EXAMPLES if page.parent.name != "trainers"]  # those: interop/test_trainers.py
PROMISED = {  # what pages say that will be printed
    "move-training": "\nthe resumed run gave the same batches\n",
    "train": " h of audio; ",
    "resume": "\n0\n48\n",
    "decode": "\nU000 [",
    # all that the page shows of a state but for the last checksum: how long a run has waited differs
    "state": next(b.code for b in BLOCKS[ROOT / "docs/state.md"] if "schema: 1" in b.code).rsplit("crc32", 1)[0],
}
BIN = str(Path(sys.executable).parent)


def named(page: Path) -> str:
    """The page's name in the names of tests; a skill's is that of its folder."""
    return page.parent.name if page in pages.SKILLS else page.stem


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """All blocks of a page, in ``folder``, with the environment's programs; those that import torch are forks."""
    forks = FORKS.stand_ins()
    path = os.pathsep.join([str(forks), BIN, os.environ["PATH"]])
    ours = {"PATH": path, "OMP_NUM_THREADS": "1", "PYTHON_EXEC": str(forks / "python")}  # the last is for torchrun
    return FORKS.run([pages.__file__, str(page)], folder, {**os.environ, **ours})


def stages() -> set[str]:
    """Names of all stages of the functional form, and of what begins a pipeline."""
    return SOURCES | {
        name for name, method in vars(Pipeline).items() if hasattr(method, "__wrapped__") and name[0] != "_"
    }


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the first command of each page makes."""
    folder = tmp_path_factory.mktemp("example")
    done = command.uio("example", ".", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("page", RUN_HERE, ids=named)
def test_a_page_works_from_its_first_line_on(page: Path, example: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(example, tmp_path / "project")  # so that the page's `uio example .` has little to do
    done = run_page(page, folder)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    assert PROMISED.get(named(page), "") in done.stdout


def test_the_script_of_get_started_survives_a_kill(example: Path, tmp_path: Path) -> None:
    """Model, optimizer and loader: the losses printed after a kill are those of a run without one."""
    folder = shutil.copytree(example, tmp_path / "project")
    script = next(b.code for b in BLOCKS[ROOT / "docs/get_started.md"] if b.language == "python")
    script = script.replace("(loader.epoch, 30)", "(loader.epoch, 4)")
    replace = 'os.replace("last.pt.new", "last.pt")'
    killed = script.replace(replace, f"{replace} if epoch < 2 else os.kill(os.getpid(), 9)")

    def printed(code: str, status: int = 0) -> list[str]:
        (folder / "train.py").write_text(code)
        done = FORKS.run(["train.py"], folder, dict(os.environ))
        assert done.returncode == status, done.stderr
        return done.stdout.splitlines()

    whole = printed(script)
    (folder / "last.pt").unlink()
    before = [line for line in whole if line < "epoch 2"]
    assert printed(killed, -9) == before
    assert 1 < len(before) < len(whole)
    assert printed(script) == whole[len(before) :]


def test_what_fails_is_named_with_page_and_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n```python\n# kept.py\nx = 1\n```\n\n```python\nimport kept\n\nprint(kept.x)\nkept.y\n```\n"
    )
    done = run_page(page, tmp_path)
    assert (done.returncode, "--- page.md:9 Page (python)\n1\n" in done.stdout) == (1, True), done.stderr
    assert 'page.md.py", line 12, in <module>' in done.stderr
    page.write_text("# Page\n\n```bash\nfalse\ntrue\n```\n")
    assert run_page(page, tmp_path).returncode == 1


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=named)
def test_a_page_says_first_how_its_folder_is_made(page: Path) -> None:
    first = next(block for block in BLOCKS[page] if block.language in RUN and not block.not_run)
    assert (first.language, first.code.split("\n")[0].split("#")[0].strip()) == ("bash", "uio example .")


@pytest.mark.parametrize(
    ("number", "script", "measured"),
    [
        ("11,804", "throughput", "| uio_pipes | 11,804 ("),
        ("8.71", "throughput", "measured: 8.71× WeNet style, soundfile"),
        ("0.08 s", "first_batch", "| tar, num_workers=0 | 0.08 ("),
        ("0.06 s", "state", "measured: 0.12 s, 0.06 s fresh"),
    ],
)
def test_a_number_on_the_front_page_was_measured(number: str, script: str, measured: str) -> None:
    for page in ("README.md", "docs/index.md", "docs/performance.md"):
        assert number in (ROOT / page).read_text(), page
    assert measured in (ROOT / "benchmarks" / "results" / f"{script}.md").read_text()


def test_hardly_a_block_is_passed_over() -> None:
    every = [block for found in BLOCKS.values() for block in found]
    assert {block.language for block in every} <= RUN | READ
    assert [_where(block) for block in every if block.not_run] == [
        ("README.md", "uio_pipes"),
        ("README.md", "uio_pipes"),
        ("agents.md", "Agents and their skills"),
        ("get_started.md", "Install"),
        ("get_started.md", "Install"),
        ("ray.md", "The cluster"),
    ]


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.stem)
def test_a_drawing_is_shown_in_both_schemes_and_by_itself(drawing: Path) -> None:
    text, root = drawing.read_text(), ElementTree.parse(drawing).getroot()
    assert root.findtext("{http://www.w3.org/2000/svg}title")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"href=|@import|url\((?!#)", text), "it fetches something"
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for element in root.iter():
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        assert 0 <= x + float(element.get("width", 0)) <= width, ElementTree.tostring(element)
        assert 0 <= y + float(element.get("height", 0)) <= height, ElementTree.tostring(element)
    assert any(f"pictures/{drawing.name})" in page.read_text() for page in PAGES), "no page shows it"


def _where(block: Block) -> tuple[str, str]:
    return block.page, block.heading


@pytest.mark.parametrize("page", OTHERS, ids=str)
def test_code_fits_a_column_and_shows_no_assertions(page: Path) -> None:
    for block in pages.blocks(page):
        for number, line in enumerate(block.code.splitlines(), block.line):
            assert len(line) <= 86, (
                f"{page}:{number} has {len(line)} columns: break it, so that nobody scrolls sideways"
            )
            hidden = "show what is printed (`print(…)  # → …`), or hide it in <!-- check"
            assert page.stem == "CONTRIBUTING" or not re.match(r" *assert\b", line), f"{page}:{number}: {hidden}"
            named = "a file is a block of its own, whose first line is `# its_name.py`"
            assert not re.match(r"cat >.*<<", line), f"{page}:{number}: {named}"


def test_what_a_block_says_that_it_prints_is_checked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    start = '# Page\n\n```python\nprint(1)  # → 1\nfor i in "ab":\n    print(i, 0.25)  # → b 0.…\n```\n'
    page.write_text(f"{start}\n<!-- check\nassert i == 'b'\n-->\n")
    assert (done := run_page(page, tmp_path)).returncode == 0, done.stderr
    page.write_text(start.replace("# → 1", "# → 2"))
    assert "page.md:4: this is not printed: 2" in run_page(page, tmp_path).stderr
    page.write_text(f"{start}\n<!-- check\nassert i == 'a'\n-->\n")
    assert run_page(page, tmp_path).returncode == 1


@pytest.mark.parametrize("page", pages.SKILLS, ids=named)
def test_an_agent_finds_a_skill_by_its_front_matter(page: Path) -> None:
    _, front, text = page.read_text().split("---\n", 2)
    told = yaml.safe_load(front)
    assert told.keys() == {"name", "description"}
    assert told["name"] == page.parent.name
    assert re.fullmatch("[a-z]+(-[a-z]+)*", told["name"])
    assert len(told["description"]) <= 1_024
    assert re.search("uio_pipes.* Use it when ", told["description"])
    assert text.startswith("\n# ")
    assert len(text.splitlines()) < 500  # what an agent reads at once


def test_what_agents_are_told_is_there() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.splitlines()) <= 60, "a screen"
    for path in re.findall(r"\b(?:scripts|tests|docs|uio_pipes|skills)/[\w./-]+\w", text):
        assert (ROOT / path).exists(), path
    assert set(re.findall(r"\(skills/([\w-]+)/SKILL\.md\)", text)) == {page.parent.name for page in pages.SKILLS}


def test_no_block_is_missed() -> None:
    for page in PAGES:
        fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]
        assert len(fences) == 2 * len(BLOCKS[page]), page


def defaults(cell: str, count: int) -> list[object]:
    """The defaults that a cell of a table names for so many parameters; where it says it in words, an Ellipsis."""
    try:
        value = ast.literal_eval(re.sub(r"(?<=\d),(?=\d{3})", "", cell.replace("`", "")))
    except (SyntaxError, ValueError):
        return [...] * count
    values = list(value) if count > 1 else [tuple(value) if isinstance(value, list) else value]
    assert len(values) == count, cell
    return values


@pytest.mark.parametrize("name", sorted(stages()))
def test_the_parameters_of_a_section_are_those_of_the_stage(name: str) -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "stages").iterdir())
    _, found, rest = pages.partition(f"\n## `{name}`\n")
    assert found, f"no page in docs/stages has a section ## `{name}`"
    section = re.split(r"\n##? ", rest)[0]
    parameters = inspect.signature(getattr(Pipeline, name, None) or getattr(uio, name)).parameters
    rows = re.findall(r"^\| (`[^|]*`) \| *([^|]*?) *\| ", section, re.MULTILINE)
    for cell, default in rows:
        names = [name for code in re.findall(r"`([^`]*)`", cell) for name in re.findall(r"\w+", code)]
        for parameter, value in zip(names, defaults(default, len(names)), strict=True):
            assert parameter in parameters
            assert value is ... or value == parameters[parameter].default, parameter
    told = {
        name for code in re.findall(r"`([^`]*)`", section.split("```python")[0]) for name in re.findall(r"\w+", code)
    }
    assert set(parameters) - {"self", "of"} <= told  # ``of`` is told once, under "Streams"


def test_every_stage_has_a_section_with_an_example() -> None:
    shown = {block.heading for page, found in BLOCKS.items() if page.parent.name == "stages" for block in found}
    assert stages() - shown == set()


def _calls(page: Path) -> list[ast.Call]:
    """The calls of the package in a page's prose and tables, such as `uio.from_nemo("manifest.json")`."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    calls = []
    for code in re.findall(r"`(uio\.\w+\([^`]*\))`", prose):
        with contextlib.suppress(SyntaxError):  # several in one, or words in between
            expression = ast.parse(code.replace("…", "..."), mode="eval").body
            if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute):
                calls.append(expression)
    return calls


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_calls_in_prose_and_tables_have_arguments_that_exist(page: Path) -> None:
    for call in _calls(page):
        assert isinstance(call.func, ast.Attribute)
        if not isinstance(call.func.value, ast.Name):
            continue
        signature = inspect.signature(getattr(uio, call.func.attr))
        ellipsis = [a for a in call.args if isinstance(a, ast.Constant) and a.value is ...]
        named = {keyword.arg: None for keyword in call.keywords if keyword.arg}
        (signature.bind_partial if ellipsis else signature.bind)(*[None] * (len(call.args) - len(ellipsis)), **named)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = pages.FENCE.sub("", page.read_text())
    titles = re.findall(r"^#+ +(.*?) *$", prose, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", t).lower()).replace(" ", "-") for t in titles
    }


@pytest.mark.parametrize("page", OTHERS, ids=named)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", pages.FENCE.sub("", page.read_text())):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def test_your_data_has_enough_such_calls() -> None:
    names = {c.func.attr for c in _calls(ROOT / "docs/your_data.md") if isinstance(c.func, ast.Attribute)}
    assert names >= {name for name in uio.__all__ if name.startswith("from_")}


NEIGHBOURS = {  # the tests of each row: a neighbour's own package reads ours, or we read what it wrote
    "WeNet": ["interop/test_wenet_reads.py::test_wenets_tar_file_and_group"],
    "webdataset": [
        "interop/test_webdataset.py::test_audio_text_and_other_members",
        "interop/test_wenet_reads.py::test_lhotse_over_webdataset",
    ],
    "CAT": [
        "interop/test_webdataset.py::test_groups_of_lengths_are_chosen_by_braces_and_globs",
        "interop/test_webdataset.py::test_features_are_bit_for_bit_what_webdataset_reads",
        "tools/data/test_pack_features.py::test_length_groups_are_in_frames_of_the_features",
    ],
    "Lhotse": [
        "interop/test_lhotse_cuts.py::test_audio_text_and_custom_fields_are_lhotses_own",
        "interop/test_lhotse.py::test_audio_and_text_are_lhotses_own",
        "interop/test_wenet_reads.py::test_lhotse_over_webdataset",
        "interop/test_lhotse_cuts.py::test_shards_raw_lists_and_touchdatasets_become_cuts",
    ],
    "NeMo": [
        "sources/test_nemo.py::test_what_lhotse_reads_of_the_same_rows_is_the_same",
        "sources/test_nemo.py::test_tarred_manifests_in_each_form",
    ],
    "NeMo's conversations": [
        "sources/test_conversations.py::test_nemos_turns_of_one_role_are_joined_and_audio_is_cut_where_it_has_an_offset",
        "sources/test_conversations.py::test_tags_in_the_users_texts_are_the_recordings_beside_the_turns",
    ],
    "Kaldi": ["sources/test_every_source.py::test_what_was_written_is_delivered"],
    "f_scps": ["tools/data/test_pack_features.py::test_several_scps_and_texts_are_packed_as_one"],
    "f_labels": ["tools/data/test_pack_features.py::test_several_scps_and_texts_are_packed_as_one"],
    "d_out": ["tools/data/test_pack.py::test_utterances_are_grouped_by_length_in_the_lists_order"],
    "filter_group": ["tools/data/test_pack_features.py::test_length_groups_are_in_frames_of_the_features"],
    "2000 utterances in a file": ["tools/cli/test_pack.py::test_the_manifest_tells_what_is_there"],
    "features made before": [
        "tools/data/test_pack_features.py::test_packed_features_are_those_that_kaldiio_reads",
        "tools/data/test_pack_features.py::test_computed_features_are_those_of_the_pipeline",
    ],
    "JiebaTokenizer": ["tokenizers/test_segmenters.py::test_words_are_those_of_jieba"],
}


def test_every_row_of_neighbours_has_a_test() -> None:
    first_cells = re.findall(r"^\| ([^|]+)\|", (ROOT / "docs/neighbours.md").read_text(), re.MULTILINE)
    rows = [re.split("[=,`]", cell.strip("` "))[0] for cell in first_cells]
    assert [row for row in rows if row not in ("", "pack_data(…)")] == list(NEIGHBOURS)
    for name in (name for names in NEIGHBOURS.values() for name in names):
        file, _, function = name.partition("::")
        assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(), name
