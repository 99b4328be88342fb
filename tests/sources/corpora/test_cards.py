"""Cards of corpora: what is there of one, what is wrong with a name, a part or a folder; cards of one's own."""

from __future__ import annotations

import runpy
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from corpora_small import BUILDS, columns, made
from corpora_small.making import Making, tarred
from tones import tone, wav_bytes

import uio_pipes as uio
from uio_pipes.io.access import PLAIN
from uio_pipes.sources.corpora.finding import everything
from uio_pipes.sources.corpora.source import CORPORA
from uio_pipes.tools.data.corpora import described, named_corpus
from uio_pipes.tools.data.recognize import recognize

SCRIPT = Path(__file__).parents[3] / "scripts" / "corpora_page.py"


def keys(pipeline: uio.Pipeline) -> list[str]:
    return sorted(sample["key"] for batch in uio.Loader(pipeline.batch(3), lanes=1) for sample in batch)


def test_each_corpus_of_the_list_has_a_card_and_is_made_small() -> None:
    assert {name.partition("/")[0] for name in BUILDS} == set(CORPORA)
    assert len(CORPORA) == 33


@pytest.mark.parametrize("name", CORPORA)
def test_a_card_is_described(name: str) -> None:
    text = described(CORPORA[name])
    assert text.startswith(f"## {name}\n")
    assert all(f"`{part}`" in text for part in CORPORA[name].parts)


def test_the_page_of_the_documentation_is_made_of_the_cards() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text()
    assert page == script["written_anew"](page), "run .venv/bin/python scripts/corpora_page.py"


# What is there


def test_what_is_extracted_is_preferred(tmp_path: Path) -> None:
    made("librispeech", tmp_path, downloaded=True)
    made("librispeech", tmp_path, downloaded=False)
    several = list(everything(CORPORA["librispeech"], str(tmp_path), {}, PLAIN))
    assert [there.layout.form for there in several] == ["extracted", "as downloaded"]


def test_a_part_that_is_only_there_as_downloaded_is_read_from_its_archive(tmp_path: Path) -> None:
    made("librispeech", tmp_path, downloaded=False)
    made("librispeech", tmp_path, downloaded=True)
    shutil.rmtree(tmp_path / "LibriSpeech" / "dev-clean")
    assert len(keys(uio.from_corpus("librispeech", tmp_path, part="dev-clean"))) == 6


def test_the_folder_may_be_the_corpus_or_the_one_above(tmp_path: Path) -> None:
    making = made("librispeech", tmp_path, downloaded=False)
    wanted = sorted(said.key for said in making.said if said.part == "dev-clean")
    for folder in (tmp_path, tmp_path / "LibriSpeech", f"{tmp_path}/LibriSpeech/"):
        assert keys(uio.from_corpus("librispeech", folder, part="dev-clean")) == wanted


@pytest.mark.parametrize(
    ("name", "folder"), [("mls", "."), ("covost2", "."), ("gigaspeech2", "."), ("gigaspeech2", "data/th")]
)
def test_the_folder_may_be_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, folder: str
) -> None:
    making = made(name, tmp_path, downloaded=True)
    monkeypatch.chdir(tmp_path / folder)
    wanted = [s.key for s in making.said if s.part == "dev" and (folder == "." or s.lang == "th")]
    assert keys(uio.from_corpus(name, ".", part="dev")) == sorted(wanted)


@pytest.mark.parametrize("folder", ["", "cv-corpus-17.0-2024-03-15", "cv-corpus-17.0-2024-03-15/zh-CN"])
def test_the_folder_may_be_that_of_a_release_or_a_language(tmp_path: Path, folder: str) -> None:
    making = made("commonvoice", tmp_path, downloaded=False)
    langs = ["zh-CN"] if folder.endswith("zh-CN") else ["pl", "zh-CN"]
    wanted = [said.key for said in making.said if said.part == "dev" and said.lang in langs]
    assert keys(uio.from_corpus("commonvoice", tmp_path / folder, part="dev")) == sorted(wanted)


@pytest.mark.parametrize("downloaded", [False, True])
def test_of_releases_that_hold_each_other_one_is_named(tmp_path: Path, downloaded: bool) -> None:
    making = made("commonvoice", tmp_path, downloaded)
    for path in sorted(tmp_path.glob("cv-*")):
        name = path.name.replace("17.0-2024-03-15", "18.0-delta-2024-03-20")
        if downloaded:
            retold = {member: data for member, data in members(path) if "clips" in member or member.endswith(".tsv")}
            renamed = {m.replace("17.0-2024-03-15", "18.0-delta-2024-03-20"): data for m, data in retold.items()}
            (tmp_path / name).write_bytes(tarred(renamed, "w:gz"))
        else:
            shutil.copytree(path, tmp_path / name)
    with pytest.raises(
        uio.ListError, match=r"commonvoice in several versions \(17.0, 18.0-delta\), .*: name one, version"
    ):
        uio.from_corpus("commonvoice", tmp_path)
    for version in ("17.0", "18.0-delta"):
        pipeline = uio.from_corpus("commonvoice", tmp_path, part="dev", lang="zh-CN", version=version)
        assert keys(pipeline) == sorted(said.key for said in making.said if (said.part, said.lang) == ("dev", "zh-CN"))
    both = uio.from_corpus("commonvoice", tmp_path, part="dev", lang="pl", version=["17.0", "18.0-delta"])
    assert len(keys(both)) == 6


def members(archive: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        return [(one.name, tar.extractfile(one).read()) for one in tar if one.isfile()]  # type: ignore[union-attr]


def test_several_of_what_a_layout_reads_one_by_one_are_refused(tmp_path: Path) -> None:
    made("aishell4", tmp_path, downloaded=False)
    with pytest.raises(uio.PipelineError, match=r"one channel is read at a time, not 0 and 1: name one, or uio.mix"):
        uio.from_corpus("aishell4", tmp_path, channel=["0", "1"])


def test_what_names_of_archives_do_not_tell_cannot_be_chosen(tmp_path: Path) -> None:
    made("commonvoice/newer", tmp_path, downloaded=True)
    with pytest.raises(uio.ListError, match="file names do not tell the lang there: remove it"):
        uio.from_corpus("commonvoice", tmp_path, lang="pl")


def test_newer_names_of_archives_in_two_languages_are_read_together(tmp_path: Path) -> None:
    making = Making(tmp_path, True)
    for lang, name in (("pl", "polish-0254cce0"), ("de", "german-1254cce0")):
        columns._language(making, lang, f"common-voice-scripted-speech-25-0-{name}.tar.gz")
    making.finish()
    assert keys(uio.from_corpus("commonvoice", tmp_path, part="dev")) == sorted(
        said.key for said in making.said if said.part == "dev"
    )


def test_a_folder_may_have_characters_of_globs(tmp_path: Path) -> None:
    folder = tmp_path / "my [old] corpora"
    making = made("spgispeech", folder, downloaded=True)
    assert keys(uio.from_corpus("spgispeech", folder)) == sorted(s.key for s in making.said if s.part == "train")


def test_several_parts_and_languages_are_read_together(tmp_path: Path) -> None:
    making = made("fleurs", tmp_path, downloaded=True)
    pipeline = uio.from_corpus("fleurs", tmp_path, part=["dev", "test"], lang=["en_us", "pl_pl"])
    assert keys(pipeline) == sorted(said.key for said in making.said if said.part != "train")
    english = uio.from_corpus("fleurs", tmp_path, part="dev", lang="en_us")
    assert keys(english) == sorted(said.key for said in making.said if (said.part, said.lang) == ("dev", "en_us"))


def test_of_parts_that_hold_each_other_only_the_largest_is_read(tmp_path: Path) -> None:
    making = made("reazonspeech", tmp_path, downloaded=True)
    assert keys(uio.from_corpus("reazonspeech", tmp_path)) == sorted(s.key for s in making.said if s.part == "small")


def test_other_columns_and_other_texts_are_read_on_request(tmp_path: Path) -> None:
    made("fleurs", tmp_path, downloaded=True)
    asked = {"gender": "gender | lower", "txt": "raw"}
    pipeline = uio.from_corpus("fleurs", tmp_path, part="dev", lang="en_us", fields=asked)
    sample = next(iter(uio.Loader(pipeline.batch(1), lanes=1)))[0]
    assert (sample["gender"], sample["txt"]) == ("female", 'A "tornado is a spinning column.')


@pytest.mark.parametrize("mic", ["mix", "array"])
def test_an_option_names_other_audio(tmp_path: Path, mic: str) -> None:
    made("ami", tmp_path, downloaded=True)
    loader = uio.Loader(uio.from_corpus("ami", tmp_path, mic=mic).decode_audio().batch(1), lanes=1)
    with pytest.raises(uio.UioError, match="Mix-Headset" if mic == "mix" else "Array1-01"):
        list(loader)


# What is not there


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("libirspeech", {}, "there is no card for 'libirspeech'; did you mean 'librispeech'"),
        ("switchboard", {}, "there is no card for 'switchboard'; there are aishell1, .* A card of your own"),
        ("fleurs", {"part": "validation"}, "fleurs has no part 'validation'; it has train, dev, test"),
        ("fleurs", {"mic": "mix"}, "fleurs has no option 'mic'; it has part, lang"),
        ("ami", {"mic": "phone"}, "ami has no mic 'phone'; it has headset, mix, array"),
        ("fleurs", {"part": ["dev", 3]}, "part must be a name, or several in a list, not .*; omit it"),
        (3, {}, "corpus must be the name of one, or a uio.Corpus, not 3"),
    ],
)
def test_what_a_corpus_has_not_got_is_refused_at_once(name: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(uio.PipelineError, match=message):
        uio.from_corpus(name, "/nowhere", **options)


def test_a_folder_without_the_corpus_says_what_was_looked_for(tmp_path: Path) -> None:
    looked = r"extracted: LibriSpeech/train-clean-100; as downloaded: train-clean-100\.tar\.gz"
    message = rf"has nothing of librispeech \(looked for {looked}\)"
    with pytest.raises(uio.ListError, match=rf"{message}: name the folder .* or download PART.tar.gz from https"):
        uio.from_corpus("librispeech", tmp_path)
    with pytest.raises(uio.ListError, match=r"looked for as downloaded: LANG/voxpopuli/LANG_asr\*\.jsonl"):
        uio.from_corpus("granary", tmp_path)


def test_a_part_or_language_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    made("librispeech", tmp_path, downloaded=True)
    with pytest.raises(uio.ListError, match="there is no part test-other, there are train-clean-100, dev-clean: name"):
        uio.from_corpus("librispeech", tmp_path, part="test-other")
    made("gigaspeech2", tmp_path, downloaded=True)
    with pytest.raises(uio.ListError, match="of gigaspeech2 there is no lang id, there are th, vi: name one of these"):
        uio.from_corpus("gigaspeech2", tmp_path, lang="id")
    with pytest.raises(uio.ListError):
        uio.from_corpus("gigaspeech2", tmp_path, lang=["th", "id"])


def test_what_is_there_in_another_layout_only_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made("librispeech", tmp_path, downloaded=True)
    made("librispeech", tmp_path, downloaded=False)
    assert keys(uio.from_corpus("librispeech", tmp_path))
    assert not caplog.records
    (tmp_path / "LibriSpeech" / "train-clean-100").rename(tmp_path / "LibriSpeech" / "train-clean-360")
    assert keys(uio.from_corpus("librispeech", tmp_path))
    assert "has train-clean-100 of librispeech in another layout (as downloaded) than the first" in caplog.text


@pytest.mark.parametrize("name", ["a{b,c}", "x | y", "{table}"])
def test_a_folder_whose_name_would_be_a_template_is_refused(tmp_path: Path, name: str) -> None:
    making = made("gigaspeech2", tmp_path / name, downloaded=True)
    with pytest.raises(uio.ListError, match=r"must not contain"):
        uio.from_corpus("gigaspeech2", making.folder, part="raw")
    (tmp_path / "plain").symlink_to(making.folder)
    found = keys(uio.from_corpus("gigaspeech2", tmp_path / "plain", part="raw"))
    assert found == sorted(said.key for said in making.said if said.part == "raw")


def test_another_release_is_not_told_since_the_first_holds_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made("commonvoice", tmp_path, downloaded=False)
    made("commonvoice", tmp_path, downloaded=True)
    for archive in tmp_path.glob("cv-corpus-*.tar.gz"):
        archive.rename(tmp_path / archive.name.replace("17.0-2024-03-15", "18.0-2024-06-14"))
    uio.from_corpus("commonvoice", tmp_path, lang="pl")
    assert not caplog.records
    uio.from_corpus("commonvoice", tmp_path, lang="pl", version="17.0")
    assert not caplog.records


def test_what_another_layout_names_more_closely_is_not_told_as_another_language(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made("mls", tmp_path, downloaded=True)
    uio.from_corpus("mls", tmp_path)
    assert not caplog.records
    with pytest.raises(uio.ListError, match="there is no lang german, there are polish: name"):
        uio.from_corpus("mls", tmp_path, lang="german")
    (tmp_path / "mls_german.tar.gz").write_bytes((tmp_path / "mls_polish_opus.tar.gz").read_bytes())
    uio.from_corpus("mls", tmp_path)
    assert [record.message.count("german") for record in caplog.records] == [1]


def test_a_folder_of_another_corpus_is_not_taken_for_a_language(tmp_path: Path) -> None:
    made("librispeech", tmp_path, downloaded=False)
    with pytest.raises(uio.ListError, match="has nothing of emilia"):
        uio.from_corpus("emilia", tmp_path / "LibriSpeech")


def test_an_order_of_archives_is_refused_where_there_are_none(tmp_path: Path) -> None:
    made("peoples_speech", tmp_path, downloaded=True)
    with pytest.raises(uio.PipelineError, match=r"stream must be None .* peoples_speech is stored there as parquet"):
        uio.from_corpus("peoples_speech", tmp_path, stream=True)


def test_a_corpus_is_a_source_of_a_mix_in_yaml(tmp_path: Path) -> None:
    making = made("gigaspeech2", tmp_path / "giga", downloaded=True)
    source = {"type": "corpus", "corpus": "gigaspeech2", "folder": f"{tmp_path}/giga", "part": "raw", "lang": "th"}
    pipeline = uio.from_config({"sources": [source]})
    assert keys(pipeline) == sorted(said.key for said in making.said if (said.part, said.lang) == ("raw", "th"))
    with pytest.raises(uio.PipelineError, match=r"gigaspeech2 has no option 'langs'; it has part, lang"):
        uio.from_config({"sources": [{**source, "langs": "th"}]})


# Cards of one's own

CARD = """
import uio_pipes as uio

mine = uio.Corpus(
    "mine", title="Calls", hours="1", download="calls", parts={"train": "train", "test": "test"}, train=("train",),
    fields={"key": "call", "wav": "audio/{call}.wav", "txt": "words"},
    layouts=(uio.Layout("extracted", uio.from_table, {"table": "{part}/calls.tsv"}),),
)
"""


def test_a_card_of_ones_own_is_read(tmp_path: Path) -> None:
    (tmp_path / "cards.py").write_text(CARD)
    (tmp_path / "train" / "audio").mkdir(parents=True)
    for name in "ab":
        (tmp_path / "train" / "audio" / f"{name}.wav").write_bytes(wav_bytes(tone(1600, 0)))
    (tmp_path / "train" / "calls.tsv").write_text("call\twords\na\thello\nb\tbye\n")
    named = named_corpus(f"{tmp_path}/cards.py:mine:{tmp_path}")
    assert named is not None
    assert [part for part, _ in named.parts()] == ["train"]
    for card in (named.card, f"{tmp_path}/cards.py:mine"):
        assert keys(uio.from_corpus(card, tmp_path)) == ["a", "b"]
    source = {"type": "corpus", "corpus": f"{tmp_path}/cards.py:mine", "folder": str(tmp_path)}
    assert keys(uio.from_config({"sources": [source]})) == ["a", "b"]
    with pytest.raises(uio.ListError, match=r"no such file: none.py"):
        uio.from_corpus("none.py:mine", tmp_path)
    call = recognize(f"{tmp_path}/cards.py:mine,part=train:{tmp_path}").call  # what `uio start` writes
    assert keys(eval(call, {"uio": uio})) == ["a", "b"]
    with pytest.raises(uio.ListError, match=r"cards.py has no format or card other: write class other.*\(…\)"):
        named_corpus(f"{tmp_path}/cards.py:other:{tmp_path}")


def test_wrong_cards_are_refused() -> None:
    layout = uio.Layout("extracted", uio.from_table, {"table": "{part}/{language}.tsv"})
    known: dict[str, Any] = {"title": "", "hours": "", "download": "", "parts": {"train": "train"}}
    wrong = [
        ({"name": "a b", "train": ["train"], "layouts": [layout]}, "name must be letters, digits and _, not 'a b'"),
        ({"name": "a", "train": ["train"], "layouts": []}, "layouts must be uio.Layout.*, at least one"),
        ({"name": "a", "train": ["dev"], "layouts": [layout]}, r"train must be some of the parts \(train\)"),
        ({"name": "a", "train": ["train"], "layouts": [layout]}, r"placeholders must be part, not \['language'\]"),
    ]
    for arguments, message in wrong:
        with pytest.raises(uio.PipelineError, match=message):
            uio.Corpus(**{**known, **arguments})


@pytest.mark.parametrize("text", ["data/train.tsv", "s3://bucket/data", "https://host/a.list", "train.py:pipeline"])
def test_paths_and_urls_name_no_corpus(text: str) -> None:
    assert named_corpus(text) is None
