"""Lists of noises: every kind of line, chosen by draws alone, read in bounded memory, named when bad."""

import gzip
import io
import json
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pytest
import soundfile
import torch
from helpers_bad import audio, noise, shard, tar

import uio_pipes as uio
from uio_pipes.base.hashing import Draws
from uio_pipes.dsp.resample import resample
from uio_pipes.io.local import LocalFile
from uio_pipes.stages.audio.noise import LONG, Choice, Clips

MB = 1 << 20


def clips(*paths: object, cache: int = 64 * MB) -> Clips:
    return Clips(tuple(map(str, paths)), "bad_noise", cache)


def levels(clips: Clips, n: int) -> Counter[int]:
    """Count how often each clip comes; clip i holds only samples of (i + 1) / 64."""
    return Counter(round(float(clips.whole(clips.choose(Draws(i)), 8000)[0]) * 64) for i in range(n))


def steady(i: int, samples: int = 400) -> bytes:

    buffer = io.BytesIO()
    soundfile.write(buffer, np.full(samples, (i + 1) / 64), 8000, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "n").mkdir()
    for i in range(4):
        (tmp_path / "n" / f"{i}.wav").write_bytes(steady(i))
    return tmp_path


@pytest.mark.parametrize(
    "kind",
    ["paths", "json", "kaldi", "glob", "braces", "files", "shard", "gz", "shard_list", "url", "memory", "memory_shard"],
)
def test_every_kind_of_list_gives_the_same_clips(folder: Path, kind: str) -> None:
    files = [folder / "n" / f"{i}.wav" for i in range(4)]
    parts = [(f"n/{i}.{s}", d) for i in range(4) for s, d in (("json", b"{}"), ("wav", steady(i)))]
    lines = {
        "paths": [str(f) for f in files],
        "json": [json.dumps({"key": f.stem, "wav": str(f)}) for f in files],
        "kaldi": [f"noise-{f.stem}  {f}" for f in files],
        "shard_list": [shard(folder / "x.tar", parts)],
        "url": [f"file://{f}" for f in files],
    }
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/clips/{i}.wav": steady(i) for i in range(4)} | {"/clips/x.tar": tar(parts)})
    lines |= {"memory": [f"memory://clips/{i}.wav" for i in range(4)], "memory_shard": ["memory://clips/x.tar"]}
    (folder / "x.list").write_text("# noises\n" + "\n".join(lines.get(kind, [])) + "\n")
    (folder / "x.tar.gz").write_bytes(gzip.compress(tar(parts)))
    given = {
        "glob": [folder / "n" / "*.wav"],
        "braces": [folder / "n" / "{0,1,2,3}.wav"],
        "files": files,
        "shard": [folder / "x.tar"],
        "gz": [folder / "x.tar.gz"],
    }.get(kind, [folder / "x.list"])
    counts = levels(clips(*given), 400)
    assert sorted(counts) == [1, 2, 3, 4]
    assert sum((n - 100) ** 2 / 100 for n in counts.values()) < 16.3  # chi-squared, 3 degrees of freedom, 99.9 %


def test_segments_of_json_lines_are_cut(folder: Path) -> None:
    (folder / "a.wav").write_bytes(audio(8000, 1))
    line = {"wav": str(folder / "a.wav"), "start": 0.25, "end": 0.5}
    (folder / "x.list").write_text(json.dumps(line) + "\n")
    whole = torch.from_numpy(noise(8000, 1)).float().T
    assert torch.equal(clips(folder / "x.list").whole(Choice(0, 0, 0), 8000), whole[0, 2000:4000])


def test_shards_have_equal_chances_whatever_they_hold(folder: Path) -> None:
    one = shard(folder / "one.tar", [("0.wav", steady(0))])
    many = shard(folder / "many.tar", [(f"{i}.wav", steady(i)) for i in range(1, 10)])
    counts = levels(clips(one, many), 600)
    assert abs(counts[1] - 300) < 3.3 * 150**0.5
    assert len(counts) == 10


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
@pytest.mark.parametrize("cache", [0, 3000, 64 * MB])
def test_choice_depends_neither_on_the_cache_nor_on_the_order(folder: Path, name: str, cache: int) -> None:
    data = tar([(f"{i}.wav", audio(300 + 500 * i, i)) for i in range(6)])
    (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    choices = [Choice(0, i * 7919 * 65_537 % 2**32, i * 104_729 * 65_537 % 2**32) for i in range(40)]
    reference = clips(folder / name)
    wanted = [reference.segment(c, 16_000, 1000) for c in choices]
    small = clips(folder / name, cache=cache)
    for i in reversed(range(40)):
        assert torch.equal(small.segment(choices[i], 16_000, 1000), wanted[i])
        assert small.cache.held <= cache


def test_only_the_chosen_member_of_a_local_tar_is_read(folder: Path) -> None:
    path = shard(folder / "x.tar", [(f"{i}.wav", audio(8000, i)) for i in range(50)])
    small = clips(path)
    small.whole(Choice(0, 0, 0), 8000)
    assert small.cache.held < 8000 * 4 + 50 * 1000  # one clip, and a line for each member


def test_short_clips_are_repeated_from_any_place_on(folder: Path) -> None:
    (folder / "a.wav").write_bytes(audio(100, 1))
    clip = torch.from_numpy(noise(100, 1)).float()[:, 0]
    pool, starts = clips(folder / "a.wav"), Counter()
    for i in range(2000):
        choice = pool.choose(Draws(i))
        first = 100 * choice.offset >> 32
        assert torch.equal(pool.segment(choice, 8000, 250), torch.roll(clip.repeat(4), -first)[:250])
        starts[first // 10] += 1
    assert len(starts) == 10
    assert sum((n - 200) ** 2 / 200 for n in starts.values()) < 27.9  # chi-squared, 9 degrees of freedom, 99.9 %


@pytest.mark.parametrize("rate", [8000, 16_000])
def test_segments_lie_anywhere_in_longer_clips(folder: Path, rate: int) -> None:
    (folder / "a.wav").write_bytes(audio(1000, 1))
    whole = resample(torch.from_numpy(noise(1000, 1)).float().T.contiguous(), 8000, rate)[0]
    pool = clips(folder / "a.wav")
    spare = len(whole) - 900
    for offset in (0, 2**31, 2**32 - 1):
        first = (spare + 1) * offset >> 32
        assert torch.equal(pool.segment(Choice(0, 0, offset), rate, 900), whole[first : first + 900])
    assert (spare + 1) * (2**32 - 1) >> 32 == spare


@pytest.mark.parametrize("form", [("WAV", "PCM_16"), ("FLAC", "PCM_16")])
@pytest.mark.parametrize("packed", [False, True])
def test_of_long_clips_only_the_segment_is_decoded(
    folder: Path, form: tuple[str, str], packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, most = LocalFile.read_upto, 100_000 if form[0] == "WAV" else 10**9
    monkeypatch.setattr(
        LocalFile, "read_upto", lambda self, at, n: read(self, at, n) if n < most else pytest.fail("all")
    )
    data = audio((LONG + 10) * 8000, 1, form=form[0], subtype=form[1])
    (folder / "a.wav").write_bytes(data)
    name = shard(folder / "x.tar", [("a.wav", data)]) if packed else str(folder / "a.wav")
    pool, whole = clips(name), torch.from_numpy(noise((LONG + 10) * 8000, 1)).float()[:, 0]
    for offset in (0, 12345 << 16, 2**32 - 1):
        part = pool.segment(Choice(0, 0, offset), 8000, 4000)
        first = (len(whole) - 4000) * offset >> 32
        assert torch.equal(part, whole[first : first + 4000])
        assert pool.segment(Choice(0, 0, offset), 16_000, 8000).shape == (8000,)
    assert pool.cache.held < 2000


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"no audio" * 20, "cannot be decoded"),
        (b"", "the audio is empty"),
        (None, "no such file"),
        (audio(800)[:-300], "copy it again"),
    ],
)
def test_bad_clip_is_named_with_its_line(folder: Path, content: bytes | None, what: str) -> None:
    if content is not None:
        (folder / "bad.wav").write_bytes(content)
    (folder / "x.list").write_text(f"\n{folder / 'bad.wav'}\n")
    with pytest.raises(uio.DataError, match=rf"bad\.wav \(listed in .*x\.list, line 2\): .*{what}") as caught:
        clips(folder / "x.list").segment(Choice(0, 0, 0), 8000, 10)
    assert caught.value.reason == "bad_noise"


def test_bad_member_and_bad_shards_are_named(folder: Path) -> None:
    bad = shard(folder / "x.tar", [("good.wav", steady(0)), ("worse.wav", b"no audio")])
    with pytest.raises(uio.DataError, match=r"x\.tar, member 'worse.wav'.*cannot be decoded"):
        clips(bad).whole(Choice(0, 2**32 - 1, 0), 8000)
    empty = shard(folder / "y.tar", [("only.txt", b"text")])
    with pytest.raises(uio.DataError, match=r"y\.tar.*contains no audio"):
        clips(empty).whole(Choice(0, 0, 0), 8000)
    (folder / "z.tar").write_bytes(Path(bad).read_bytes()[:900])
    with pytest.raises(uio.DataError, match=r"z\.tar.*ends within a payload") as caught:
        clips(folder / "z.tar").whole(Choice(0, 0, 0), 8000)
    assert caught.value.reason == "bad_noise"
    with pytest.raises(uio.DataError, match=r"gone\.tar.*no such file"):
        clips(folder / "gone.tar").whole(Choice(0, 0, 0), 8000)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"key": "a"}', 'is not a JSON object with a "wav"'),
        ("a sox x.wav -t wav - |", "shell command"),
        ('{"wav": 3}', "path"),
    ],
)
def test_lines_that_name_no_file_stop_the_run(folder: Path, line: str, what: str) -> None:
    (folder / "x.list").write_text(f"{folder / 'n' / '0.wav'}\n{line}\n")
    with pytest.raises(uio.ListError, match=what):
        clips(folder / "x.list")


def test_missing_list_and_folders_stop_the_run(folder: Path) -> None:
    with pytest.raises(uio.ListError):
        clips(folder / "gone.list")
    with pytest.raises(uio.ListError):
        clips(folder / "n")
    with pytest.raises(uio.ListError):
        clips(folder / "*.flac")
