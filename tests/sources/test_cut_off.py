"""Texts and tables that were cut off, at every byte: what is left of the last line is told."""

from collections.abc import Callable
from pathlib import Path

import pytest
from archive_files import tone

import uio_pipes as uio


def from_kaldi(path: Path) -> uio.Pipeline:
    (path.parent / "s.wav").write_bytes(tone(1))
    (path.parent / "wav.scp").write_text("".join(f"k{number} {path.parent}/s.wav\n" for number in range(3)))
    return uio.from_kaldi(path.parent / "wav.scp", path)


def from_stm(path: Path) -> uio.Pipeline:
    return uio.from_table(path, fields={"key": "recording", "txt": "text", "end": "end"})


# the name of the file, what reads it, its lines
KINDS: dict[str, tuple[Callable[[Path], uio.Pipeline], list[str]]] = {
    "a.tsv": (uio.from_table, ["key\ttxt", "k0\tone word", "k1\tmore of them", "k2\tthe last ones"]),
    "a.csv": (uio.from_table, ["key,txt", 'k0,"one, word"', "k1,more of them", "k2,the last ones"]),
    "a.stm": (from_stm, ["k0 1 s 0.00 1.25 one word", "k1 1 s 0.00 1.25 more", "k2 1 s 0.00 1.25 the last"]),
    "text": (from_kaldi, ["k0 one word", "k1 more of them", "k2 the last ones"]),
    "a.txt": (uio.from_text, ["one word", "more of them", "the last ones"]),
}


def read(pipeline: uio.Pipeline, lanes: int = 1) -> tuple[dict[str, tuple[str, float | None]], dict[str, int]]:
    loader = uio.Loader(pipeline, lanes=lanes)
    return {s["key"]: (s["txt"], s.get("end")) for s in loader}, dict(loader.stats().skipped)


@pytest.mark.parametrize("name", KINDS)
def test_whatever_is_left_of_a_line_is_told(tmp_path: Path, name: str) -> None:
    start, lines = KINDS[name]
    path, text = tmp_path / name, "\n".join([*lines, ""])
    path.write_text(text)
    sound, told = read(start(path))
    assert (len(sound), told) == (3, {})
    for end in range(len(lines[0]) + 2, len(text)):
        path.write_text(text[:end])
        try:
            found, told = read(start(path), lanes=2)
        except (uio.ListError, uio.TooManyFailures):  # no row is left, or torn
            continue
        whole = text[:end].count("\n") - (text.count("\n") - 3)
        assert {key: found.get(key) for key in list(sound)[:whole]} == {key: sound[key] for key in list(sound)[:whole]}
        assert told or text[end - 1] == "\n", text[:end]
        assert told.get("unclear_end", 1) == 1


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.txt"])
def test_a_line_alone_and_json_need_no_line_end(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text({"a.tsv": "txt\nx\n", "a.jsonl": '{"txt": "a"}\n{"txt": "b"}', "a.txt": "x"}[name])
    start = uio.from_text if name == "a.txt" else uio.from_table
    assert read(start(tmp_path / name))[1] == {}
