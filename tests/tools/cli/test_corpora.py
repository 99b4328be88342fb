"""Published corpora on the command line: ``uio corpora``, and what the other commands make of ``NAME:FOLDER``."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from command import digests, uio
from corpora_small import made

import uio_pipes
from uio_pipes.sources.corpora.source import CORPORA


def bytes_of(wav: Any) -> bytes:
    return bytes(wav if isinstance(wav, bytes) else wav.read())


def test_corpora_are_listed() -> None:
    done = uio("corpora")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in CORPORA)
    listed = json.loads(uio("corpora", "--json").stdout)
    assert [one["name"] for one in listed] == list(CORPORA)


def test_a_corpus_is_shown() -> None:
    done = uio("corpora", "gigaspeech2")
    assert done.returncode == 0, done.stderr
    assert "- Parts: `refined`, `raw`, `dev`, `test`." in done.stdout
    assert "speechcolab/gigaspeech2" in done.stdout
    shown = json.loads(uio("corpora", "gigaspeech2", "--json").stdout)
    assert shown["parts"] == ["refined", "raw", "dev", "test"]
    assert shown["layouts"][0]["paths"][0] == "data/{lang}/{part}.tsv"


def test_a_name_without_a_card_is_wrong_use() -> None:
    done = uio("corpora", "librispeach")
    assert done.returncode == 2
    assert "did you mean 'librispeech'?" in done.stderr


def test_inspect_shows_each_part_that_is_there_and_what_is_missing(tmp_path: Path) -> None:
    making = made("gigaspeech2", tmp_path, downloaded=True)
    done = uio("inspect", f"gigaspeech2,lang=th:{tmp_path}", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1, "the refined rows name a member that is not there"
    parts = {one["kind"].partition(",")[0]: one for one in report["parts"]}
    said = [one for one in making.said if one.lang == "th"]
    assert {part: one["utterances"] for part, one in parts.items()} == {
        part: sum(one.part == part for one in said) for part in ("refined", "raw", "dev", "test")
    }
    assert report["utterances"] == sum(one.part != "refined" for one in said), "raw holds refined"
    assert parts["refined"]["kind"].endswith("archives (0.tar.gz … 1.tar.gz), which another part holds")
    assert parts["raw"]["hours"] == pytest.approx(sum(one.seconds for one in said if one.part == "raw") / 3600)
    assert report["failures"] == {"no_audio": 1}
    assert report["left_out"] == {"no_row": 4}
    assert "inspecting" in done.stderr


def test_inspect_shows_the_other_parts_where_an_archive_has_not_got_one(tmp_path: Path) -> None:
    making = made("commonvoice/newer", tmp_path, downloaded=True)  # without validated.tsv and others
    done = uio("inspect", f"commonvoice:{tmp_path}", "--json")
    report = json.loads(done.stdout)
    parts = {one["kind"].partition(",")[0]: one["utterances"] for one in report["parts"]}
    assert done.returncode == 1
    assert {part: parts[part] for part in ("train", "dev", "test")} == dict.fromkeys(("train", "dev", "test"), 3)
    assert sum(parts.values()) == len(making.said)
    assert report["failures"] == {"no_audio": 1}, "the audio of a row of train; an absent part is no failure"
    absent = {one["kind"].partition(",")[0] for one in report["parts"] if one["kind"].endswith(", which is not in it")}
    assert absent == parts.keys() - {"train", "dev", "test"}
    assert uio("inspect", f"commonvoice,part=other:{tmp_path}").returncode == 2


def test_pack_makes_shards_of_a_corpus_and_keeps_its_files(tmp_path: Path) -> None:
    making = made("emilia", tmp_path / "emilia", downloaded=True)
    done = uio("pack", f"emilia,part=Emilia,lang=EN+DE:{tmp_path}/emilia", tmp_path / "shards", "--per-shard", "4")
    assert done.returncode == 0, done.stderr
    loader = uio_pipes.Loader(uio_pipes.from_shard_list(tmp_path / "shards" / "shards.list").batch(1), lanes=1)
    read = {batch[0]["key"]: batch[0] for batch in loader}
    wanted = {said.key: said for said in making.said if said.part == "Emilia"}
    assert {key: sample["txt"] for key, sample in read.items()} == {key: said.txt for key, said in wanted.items()}
    with tarfile.open(tmp_path / "emilia" / "Emilia" / "EN" / "EN-B000000.tar") as tar:
        member = next(one for one in tar if one.name.endswith(".mp3"))
        file = tar.extractfile(member)
        assert file is not None
        first = file.read()
    assert bytes_of(read[member.name.removesuffix(".mp3")]["wav"]) == first


@pytest.mark.parametrize("form", ["as-is", "flac"])
def test_pack_of_segments_cuts_them(tmp_path: Path, form: str) -> None:
    making = made("yodas2", tmp_path / "yodas2", downloaded=True)
    done = uio("pack", f"yodas2,lang=en000:{tmp_path}/yodas2", tmp_path / "shards", "--format", form)
    assert done.returncode == 0, done.stderr
    loader = uio_pipes.Loader(
        uio_pipes.from_shard_list(tmp_path / "shards" / "shards.list").decode_audio().batch(1), lanes=1
    )
    lengths = {batch[0]["key"]: batch[0]["wav"].shape[-1] / batch[0]["sample_rate"] for batch in loader}
    assert lengths == pytest.approx({said.key: said.seconds for said in making.said if said.lang == "en000"}, abs=1e-3)


def packed(source: str, out: Path, jobs: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the report of ``uio pack`` in shards of 2, and the files that it wrote."""
    done = uio("pack", source, out, "--per-shard", "2", "--jobs", str(jobs), "--json")
    files = [path for path in out.rglob("*") if path.suffix in (".tar", ".jsonl", ".json") and path.is_file()]
    return {**json.loads(done.stdout), "list": ""}, {str(path.relative_to(out)): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", ["covost2", "gigaspeech2,lang=th,part=raw"])
def test_any_number_of_jobs_packs_a_corpus_into_the_same_bytes(name: str, tmp_path: Path) -> None:
    making = made(name.partition(",")[0], tmp_path / "corpus", downloaded=True)
    report, files = packed(f"{name}:{tmp_path}/corpus", tmp_path / "one", 1)
    assert report["utterances"] >= 3
    assert packed(f"{name}:{tmp_path}/corpus", tmp_path / "three", 3) == (report, files)
    if name == "covost2":  # rows of other parts are no failures
        assert report["left_out"] == making.lost["train"]


def test_shares_of_a_corpus_are_packed_as_it_is_at_once(tmp_path: Path) -> None:
    made("spgispeech", tmp_path, downloaded=True)
    found = []
    for shares in (["1/1"], ["2/2", "1/2"]):
        out = tmp_path / f"out{len(shares)}"
        for share in shares:
            done = uio("pack", f"spgispeech:{tmp_path}", out, "--per-shard", 1, "--split", share)
            assert done.returncode == 0, done.stderr
        found.append(digests(out))
    assert found[0] == found[1] != {}


def test_verify_reads_a_corpus(tmp_path: Path) -> None:
    made("spgispeech", tmp_path, downloaded=True)
    assert uio("verify", f"spgispeech:{tmp_path}").returncode == 0
    (tmp_path / "spgispeech" / "train" / "97ab" / "12.wav").write_bytes(b"RIFF")
    done = uio("verify", f"spgispeech:{tmp_path}")
    assert done.returncode == 1
    assert "97ab/12" in done.stderr


def test_a_folder_without_the_corpus_is_wrong_use(tmp_path: Path) -> None:
    done = uio("inspect", f"librispeech:{tmp_path}")
    assert done.returncode == 2
    assert "looked for extracted: LibriSpeech/train-clean-100" in done.stderr
