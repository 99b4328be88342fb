"""The search for texts: published layouts, each with its texts and audio; the numbers that it says; what it asks."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import command
import corpora_small
import corpus
import layouts
import numpy as np
import pytest

import uio_pipes as uio
from uio_pipes.tools.data.finding.find import find_data
from uio_pipes.tools.data.recognize import Recognized


def heard(found: Recognized) -> list[tuple[int, str | None]]:
    """Tone and text of each utterance, in order; a tone is 50 Hz apart from the next one."""
    return sorted((_tone(sample), sample.get("txt")) for sample in uio.Loader(found.pipeline.decode_audio()))


def _tone(sample: uio.Sample) -> int:
    wave = sample["wav"].numpy()[0]
    spectrum = np.abs(np.fft.rfft((wave - wave.mean()) * np.hanning(len(wave)), 1 << 16))
    return round(int(spectrum.argmax()) * int(sample["sample_rate"]) / (1 << 16) / 50)


@pytest.mark.parametrize("name", layouts.LAYOUTS)
def test_texts_and_audio_of_a_published_layout_come_without_an_option(name: str, tmp_path: Path) -> None:
    made = layouts.made(name, tmp_path / "c")
    train = [said for said in made.said if said.part == "train"] or made.said
    found = find_data(str(tmp_path / "c"), tmp_path / "train.list")
    assert heard(found) == sorted((round(said.tone / 50), said.txt) for said in train), found.notes
    assert found.notes
    keys = [sample["key"] for sample in uio.Loader(found.pipeline)]
    assert len({*keys}) == len(keys)


FORMS: dict[str, Callable[[str, str], str]] = {
    "transcripts.txt": lambda key, text: f"{key} {text}",
    "brackets.data": lambda key, text: f'( {key} "{text}" )',
    "behind.txt": lambda key, text: f"{text} ({key})",
    "table.csv": lambda key, text: f'7,wavs/{key}.wav,"{text}"',
    "lines.jsonl": lambda key, text: json.dumps({"clip": f"{key}.wav", "said": text}),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_transcript_beside_recordings_is_joined_by_its_folder_and_by_its_own_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "X" / "wavs").mkdir(parents=True)
    for number in range(5):
        (tmp_path / "X" / "wavs" / f"u{number}.wav").write_bytes(corpus.wav_bytes(number))
    rows = [FORMS[name](f"u{number}", f"good day, {number}") for number in range(5)]
    (tmp_path / "X" / name).write_text("\n".join(rows) + "\n")
    for given in ("X", f"X/{name}"):
        found = find_data(str(tmp_path / given))
        samples = list(uio.Loader(found.pipeline.decode_audio()))
        assert sorted(sample["txt"] for sample in samples) == [f"good day, {number}" for number in range(5)]


def test_recordings_without_a_text_are_asked_about(tmp_path: Path) -> None:
    made = layouts.made("mediaspeech", tmp_path / "c")
    os.remove(tmp_path / "c/TR/a1b.txt")
    done = command.uio("start", "c", cwd=tmp_path)
    assert done.returncode == 2
    told = done.stderr.replace("\n", " ")
    assert "no texts cover 95 % of the recordings. Name the one to take: uio start c/TR/a0b.txt" in told
    assert "(3 of 4 recordings have a text by the .txt of the same name, like TR/a0b.txt; 1 has none)" in told
    assert not (tmp_path / "train.list").exists()
    done = command.uio("start", "c/TR/a0b.txt", cwd=tmp_path)
    assert "tried, it gave 3 utterances" in done.stdout, done.stderr
    assert len(made.said) == 4


def test_texts_that_name_no_recording_are_no_audio_without_texts(tmp_path: Path) -> None:
    layouts.made("transcripts_beside_wavs", tmp_path)
    (tmp_path / "transcripts.txt").write_text("".join(f"a good day {number}\n" for number in "four"))
    with pytest.raises(uio.ListError, match=r"4 recordings and transcripts.txt, which names them in no known form"):
        find_data(str(tmp_path))
    (tmp_path / "transcripts.txt").unlink()
    assert find_data(str(tmp_path)).notes == ["none of 4 recordings has a text that is known"]


def test_another_part_is_named(tmp_path: Path) -> None:
    made = layouts.made("magicdata", tmp_path / "c")
    found = find_data(str(tmp_path / "c"), part="dev")
    assert heard(found) == sorted((round(s.tone / 50), s.txt) for s in made.said if s.part == "dev")
    assert found.notes[1] == "dev is read, and not train or test (--part train)"
    assert len(heard(find_data(str(tmp_path / "c/test/TRANS.txt")))) == 2
    with pytest.raises(uio.ListError, match=r"TRANS.txt is neither a folder nor a published corpus, .*: leave it out"):
        find_data(str(tmp_path / "c/test/TRANS.txt"), part="dev")
    os.remove(tmp_path / "c/train/TRANS.txt")
    with pytest.raises(uio.ListError, match=r"train has no texts that are known, and dev and test have: .* --part dev"):
        find_data(str(tmp_path / "c"))


def test_a_part_of_a_corpus_is_named_and_the_script_may_lie_elsewhere(tmp_path: Path) -> None:
    folder = corpora_small.made("librispeech", tmp_path / "LibriSpeech", downloaded=False).folder
    (tmp_path / "sub").mkdir()
    (tmp_path / "train.pt").write_text("of another script")
    given = ("start", f"librispeech:{folder}", "--part", "dev-clean", "--out", "sub/train.py")
    done = command.uio(*given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    script = (tmp_path / "sub" / "train.py").read_text()
    assert 'part="dev-clean"' in script
    assert '"sub/train.pt"' in script


def test_a_table_of_files_in_folders_of_speakers_is_not_read_by_the_first_row(tmp_path: Path) -> None:
    layouts.made("magicdata", tmp_path / "c")
    done = command.uio("verify", "c/dev/TRANS.txt", cwd=tmp_path)
    told = "lie in several folders (5_540/{UtteranceID}, 5_541/{UtteranceID}): uio start c/dev/TRANS.txt finds each"
    assert told in done.stderr.replace("\n", " "), done.stderr
    assert len(heard(find_data(str(tmp_path / "c/dev/TRANS.txt")))) == 2
    layouts.made("folders_of_speakers", tmp_path / "d")
    assert len(heard(find_data(str(tmp_path / "d/all.tsv")))) == 6


def test_a_name_in_the_wrong_folder_is_not_taken(tmp_path: Path) -> None:
    """Where the folder that rows name is that of most recordings, a recording elsewhere is another one."""
    made = layouts.made("css10", tmp_path)
    rows = (tmp_path / "german/transcript.txt").read_text()
    (tmp_path / "german/transcript.txt").write_text(
        rows + "other/meisterfloh_0000.wav|that is not it|that is not it|1\n"
    )
    assert heard(find_data(str(tmp_path))) == sorted((round(said.tone / 50), said.txt) for said in made.said)


def test_inspect_shows_what_the_search_finds(tmp_path: Path) -> None:
    layouts.made("jsut", tmp_path / "c")
    done = command.uio("inspect", "c", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["utterances"] == 6, done.stderr
    done = command.uio("inspect", "c", cwd=tmp_path)
    assert "6 of 6 recordings have a text by column 1 of 2 files like" in done.stdout


NOT_READ: dict[str, tuple[Callable[[Path], object], str]] = {
    "texts of no known form": (
        lambda folder: [(folder / f"u{n}.txt").write_text(f"[0.0]\n<no-speech>\n[1.{n}]\nhello\n") for n in range(4)],
        r"4 texts like u0.txt, which names them in no known form \('\[0.0\] <no-speech> \[1.0\] hello'\): write",
    ),
    "binary texts": (
        lambda folder: [(folder / f"u{n}.txt").write_bytes(bytes(range(256))) for n in range(4)],
        "4 texts like u0.txt, which names them in no known form",
    ),
    "a damaged gzip": (lambda folder: (folder / "t.csv.gz").write_bytes(b"no gzip"), "cannot be read .*repair it"),
    "a name that is not UTF-8": (
        lambda folder: os.rename(folder / "wavs/u0.wav", os.fsencode(folder) + b"/wavs/\xff.wav"),
        "is a name that is not UTF-8, .*: rename it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NOT_READ)
def test_what_cannot_be_read_is_told(what: str, tmp_path: Path) -> None:
    (tmp_path / "wavs").mkdir()
    for number in range(4):
        (tmp_path / f"wavs/u{number}.wav").write_bytes(corpus.wav_bytes(number))
    prepare, told = NOT_READ[what]
    prepare(tmp_path)
    with pytest.raises(uio.ListError, match=told):
        find_data(str(tmp_path))


def test_links_in_circles_bring_nothing_twice(tmp_path: Path) -> None:
    made = layouts.made("transcripts_beside_wavs", tmp_path / "c")
    layouts.made("mediaspeech", tmp_path / "beside")
    for name, target in (("self", "."), ("above", ".."), ("again", "wavs"), ("broken.wav", "nowhere")):
        os.symlink(target, tmp_path / "c" / name)
    assert heard(find_data(str(tmp_path / "c"))) == sorted((round(said.tone / 50), said.txt) for said in made.said)
