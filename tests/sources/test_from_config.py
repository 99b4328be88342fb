"""``from_config``: what a file describes is the same as what Python would build, and errors name line and key."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uio_pipes as uio

ONE = "sources:\n- type: raw_list\n  paths: x\n"
SYMBOLS = {"<blank>": 0, "<unk>": 1, "a": 2, "b": 3}


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the working directory, with three lists of features and a dictionary."""

    np.save(tmp_path / "x.npy", np.zeros((20, 4), np.float32))
    for name, count in (("one", 30), ("two", 60), ("three", 90)):
        lines = [{"key": f"{name}-{i}", "feat": str(tmp_path / "x.npy"), "txt": "ab"} for i in range(count)]
        (tmp_path / f"{name}.list").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "words.txt").write_text("".join(f"{symbol} {number}\n" for symbol, number in SYMBOLS.items()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "data.yaml") -> str:
    Path(name).write_text(text)
    return name


def keys(pipeline: uio.Pipeline, **options: Any) -> list[str]:
    return [key for batch in uio.Loader(pipeline.batch(5).pad(), **options) for key in batch["keys"]]


def test_a_file_is_the_same_as_the_mix_in_python(lists: Path) -> None:
    written = uio.from_config(
        write("""\
shuffle: true
sources:
  - {type: raw_list, name: first, paths: one.list, weight: 3, shuffle: false}
  - type: raw_list
    name: second
    paths: [two.list, three.list]
    weight: 1
    tags: {lang: en}
    apply:
      - tokenize: {tokenizer: {CharTokenizer: words.txt}}
      - filter: {min_frames: 5, max_frames: 100}
apply:
  - shuffle: 20
""")
    )
    second = uio.from_raw_list(["two.list", "three.list"], shuffle=True).tag({"lang": "en"})
    second = second.tokenize(uio.CharTokenizer("words.txt")).filter(min_frames=5, max_frames=100)
    by_hand = uio.mix({"first": uio.from_raw_list("one.list"), "second": second}, {"first": 3, "second": 1}).shuffle(20)
    assert str(written) == str(by_hand)
    assert written.fingerprint() == by_hand.fingerprint()


def test_weights_of_nested_groups_multiply_and_tags_are_inherited(lists: Path) -> None:
    pipeline = uio.from_config(
        write("""\
stop: endless
sources:
  - {type: raw_list, paths: one.list, weight: 1, tags: {task: b}}
  - type: group
    weight: 3
    tags: {task: a, lang: en}
    sources:
      - {type: raw_list, paths: two.list, weight: 1, tags: {lang: de}}
      - {type: raw_list, paths: three.list, weight: 4}
""")
    )
    seen: Counter[tuple[str, str, str | None]] = Counter()
    for (sample,) in uio.Loader(pipeline.batch(1), steps_per_epoch=4000, lanes=1):  # whose features are not read
        seen[sample["key"].partition("-")[0], sample["task"], sample.get("lang")] += 1
    assert set(seen) == {("one", "b", None), ("two", "a", "de"), ("three", "a", "en")}
    shares = {name: count / 4000 for (name, _, _), count in seen.items()}
    assert shares == pytest.approx({"one": 0.25, "two": 0.15, "three": 0.60}, abs=0.03)


@pytest.mark.parametrize(("temperature", "shares"), [("0", (1, 1)), ("0.5", (3, 1)), ("[1]", (9, 1)), ("1.0", (9, 1))])
def test_temperature(lists: Path, temperature: str, shares: tuple[float, float]) -> None:
    entries = "  - {type: raw_list, paths: one.list, weight: 9}\n  - {type: raw_list, paths: two.list, weight: 1}\n"
    read = uio.from_config(write(f"temperature: {temperature}\nsources:\n{entries}"))
    assert read.stages[0].weights == pytest.approx(shares)  # type: ignore[attr-defined]


def test_temperatures_are_those_of_the_levels_and_a_group_may_be_another_file(lists: Path) -> None:
    inner = "- {type: raw_list, paths: one.list, weight: 16}\n- {type: raw_list, paths: two.list, weight: 1}\n"
    write(inner, "inner.yaml")
    read = uio.from_config(
        write("""\
temperature: [1, 0.5]
sources:
  - {type: raw_list, paths: three.list, weight: 4}
  - {type: group, sources: inner.yaml, weight: 1}
""")
    )
    assert read.stages[0].weights == pytest.approx((4, 1))  # type: ignore[attr-defined]
    assert read.stages[0].pipelines["1"].stages[0].weights == pytest.approx((4, 1))  # type: ignore[attr-defined]


def test_the_names_of_nemo_are_known(lists: Path) -> None:
    ours = {"sources": [{"type": "group", "sources": [{"type": "raw_list", "paths": "one.list"}]}], "temperature": 0.5}
    theirs = {
        "input_cfg": [{"type": "group", "input_cfg": [{"type": "raw_list", "cuts_path": "one.list"}]}],
        "reweight_temperature": 0.5,
    }
    assert str(uio.from_config(theirs)) == str(uio.from_config(ours))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sources:\n- type: raw_lst\n  paths: x\n", "line 2: type has no 'raw_lst'; did you mean 'raw_list'?"),
        ("sources:\n- type: raw_list\n  pathz: x\n", "line 3: the type raw_list has no 'pathz'; did you mean 'paths'?"),
        ("sources:\n- paths: x\n", "line 2: type must be the name of a source, not None"),
        ("sources:\n- type: raw_list\n", "line 2: the type raw_list needs 'paths'"),
        ("sources:\n- type: raw_list\n  paths: []\n", "line 2: list_files: at least one list"),
        (ONE + "  weight: -1\n", "line 4: weight must be a number, 0 or more"),
        ("sources:\n- {type: raw_list, paths: x, weight: 1}\n- {type: raw_list, paths: x}\n", "line 3: weight must be"),
        ("sources:\n- {type: raw_list, paths: x, name: a}\n- {type: raw_list, paths: x, name: a}\n",
         "line 3: two sources are named 'a'"),
        (ONE + "  tags: en\n", "line 4: tags must be values by name"),
        (ONE + "  tags: {key: en}\n", "line 4: tag: a tag cannot be key"),
        (ONE + "  apply: mono\n", "line 4: apply must be a list"),
        (ONE + "  apply:\n  - decode_audio\n  - resampl: 8000\n",
         "line 6: there is no stage 'resampl'; did you mean 'resample'?"),
        (ONE + "  apply: [as_dataset]\n", "line 4: there is no stage 'as_dataset'"),
        (ONE + "  apply: [{resample: high}]\n", "line 4: resample: resample_rate must"),
        (ONE + "  apply: [{tokenize: {CharTokenizer: nowhere.txt}}]\n",
         "line 4: cannot read the symbol table of CharTokenizer, nowhere.txt"),
        (ONE + "  apply: [{mono: {}, resample: 8000}]\n", "line 4: a stage is its name"),
        ("sources: []\n", "line 1: a group needs its sources, a list"),
        ("sources:\n- type: group\n  sources: nowhere.yaml\n", "cannot read the configuration nowhere.yaml"),
        ("stop: never\n" + ONE, "line 1: stop must be one of"),
        ("shufle: true\n" + ONE, "line 1: a group has no 'shufle'; did you mean 'shuf"),
        ("temperature: [1, 2]\n" + ONE, "line 1: temperature must be a number, 0 or mor"),
        ("temperature: -1\n" + ONE, "line 1: temperature must be a number, 0 or more"),
        ("input_cfg: []\nsources: []\n", "line 1: input_cfg and sources mean the same"),
        ("- {type: group, sources: data.yaml}\n", "line 1: data.yaml is within itself"),
        ("allow_pipes: true\n" + ONE, "line 1: no source in here takes 'allow_pipes': leave it out"),
        ("text: content\n" + ONE, "line 1: 'text' cannot be given for all sources at once: give it to each that"),
        ("paths: one.list\n" + ONE, "line 1: 'paths' cannot be given for all sources at once"),
        ("weight: 3\n" + ONE, "line 1: the whole file has no 'weight'"),
        (ONE + "name: r\n", "line 4: the whole file has no 'name'"),
        ("shuffle: 'yes please'\n" + ONE, "line 1: list_files: shuffle must be True or False"),
        (ONE + "  shuffle: 'yes please'\n", "line 4: list_files: shuffle must be True or False"),
        (ONE + "  apply: [{tokenize: {ChrTokenizer: w}}]\n",
         "no tokenizer 'ChrTokenizer'; did you mean 'CharTokenizer'?"),
        (ONE + "- {type: raw_list, paths: x, apply: [{batch: 3}]}\n",
         "line 4: mix: source '1' must give samples as other sources do"),
        ("17\n", "expected a mapping of keys and values, not 17"),
    ],
)  # fmt: skip
def test_errors_name_line_and_key(lists: Path, text: str, message: str) -> None:
    with pytest.raises(uio.UioError) as caught:
        uio.from_config(write(text))
    assert message in str(caught.value)


def test_an_option_of_a_group_may_be_for_some_of_its_sources(lists: Path) -> None:
    read = uio.from_config(write("allow_pipes: true\n" + ONE + "- {type: group, sources: [{type: kaldi, scp: x}]}\n"))
    assert "allow_pipes=True" in str(read)


def test_options_of_storage_reach_every_source_but_no_message(lists: Path) -> None:
    read = uio.from_config(write("- {type: raw_list, paths: one.list}\n"), storage_options={"s3": {"secret": "S3CRET"}})
    (source,) = read.stages[0].pipelines.values()
    assert source.stages[0].access.options("s3://b/x") == {"secret": "S3CRET"}  # type: ignore[attr-defined]
    assert "S3CRET" not in str(read) + repr(read)
