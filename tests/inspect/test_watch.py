"""``watch`` shows what happens and changes nothing."""

import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import FORKS
from contract import digest, keys_of
from corpus import Corpus
from processes import environment

import uio_pipes as uio


def loader(corpus: Corpus, **options: Any) -> uio.Loader:
    return uio.Loader(pipeline(corpus.list), seed=3, **options)


def pipeline(path: Path | str) -> uio.Pipeline:
    return uio.from_shard_list(path).decode_audio().filter(min_frames=40).fbank(num_mel_bins=6).batch(4).pad()


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_and_states_are_as_without_it(many_shards: Corpus, workers: int) -> None:
    plain, watched = (loader(many_shards, num_workers=workers) for _ in range(2))
    for _ in range(2):
        expected = [(digest(b), strip(plain.state_dict())) for b in plain]
        assert [(digest(b), strip(watched.state_dict())) for b in uio.watch(watched)] == expected
        assert watched.epoch == plain.epoch


def test_it_can_be_iterated_over_again_and_is_the_loader_otherwise(raw_corpus: Corpus) -> None:
    plain = uio.Loader(uio.from_raw_list(raw_corpus.list, shuffle=True).decode_audio().batch(4).pad())
    watched = uio.watch(uio.Loader(plain.pipeline))
    for epoch in range(3):
        plain.set_epoch(epoch)
        watched.set_epoch(epoch)
        assert [keys_of(b) for b in watched] == [keys_of(b) for b in plain]
    assert len(watched) == len(plain)
    assert watched.stats().utterances == plain.stats().utterances


def strip(state: dict[str, str]) -> dict[str, str]:
    return {k: re.sub(r'"waited_us": \d+|"crc32": "\w+"', "", v) for k, v in state.items()}


def test_break_ends_the_run_and_the_next_goes_on(many_shards: Corpus) -> None:
    watched = loader(many_shards)
    everything = [keys_of(b) for b in loader(many_shards)]
    first = []
    for batch in uio.watch(watched):
        first.append(keys_of(batch))
        if len(first) == 3:
            break
    assert first + [keys_of(b) for b in uio.watch(watched)] == everything


def test_exceptions_pass_through(many_shards: Corpus, bad_corpus: Corpus) -> None:
    with pytest.raises(ZeroDivisionError):
        max(1 / 0 for _ in uio.watch(loader(many_shards)))
    with pytest.raises(uio.DataError, match="bad_header"):
        list(uio.watch(uio.Loader(pipeline(bad_corpus.list), failures="raise")))


def test_a_plain_line_now_and_at_the_end_where_there_is_no_terminal(
    many_shards: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = loader(many_shards)
    batches = sum(1 for _ in uio.watch(watched, every=1e-9))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == batches + 1
    stats = watched.stats()
    assert stats.skipped["too_short"] > 0
    assert lines[-1].startswith(f"epoch 0 | {stats.utterances} utterances | ")
    for word in (" h/s", f"padding {stats.padding_ratio:.1%}", f"skipped {sum(stats.skipped.values())}", "waiting "):
        assert word in lines[-1]
    sum(1 for _ in uio.watch(watched))
    assert [line[:8] for line in capsys.readouterr().err.splitlines()] == ["epoch 1 "], "once, after the epoch"


def test_other_ranks_show_nothing(
    many_shards: Corpus, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(uio.watch(loader(many_shards, rank=1, world_size=2)))
    monkeypatch.setenv("RANK", "1")
    assert list(uio.watch(loader(many_shards, partition=False)))
    assert capsys.readouterr().err == ""


def test_a_closed_terminal_does_not_end_the_training(
    many_shards: Corpus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise BrokenPipeError("closed")

    monkeypatch.setattr("builtins.print", refuse)
    expected = len(list(loader(many_shards)))
    assert len(list(uio.watch(loader(many_shards), every=1e-9))) == expected
    assert "shows nothing more" in caplog.text


@pytest.mark.parametrize(("given", "remedy"), [(0, "30"), (-1, "30"), (float("nan"), "30")])
def test_bad_arguments(many_shards: Corpus, given: float, remedy: str) -> None:
    with pytest.raises(uio.PipelineError, match=remedy):
        uio.watch(loader(many_shards), every=given)
    with pytest.raises(uio.PipelineError, match="Loader"):
        uio.watch([1, 2])  # type: ignore[arg-type]


LOOP = """
import sys, time, test_watch as here
from uio_pipes.inspect import watch
watch.REFRESH = 0.001
for i, batch in enumerate(here.uio.watch(here.uio.Loader(here.pipeline(sys.argv[1])))):
    time.sleep(0.002)
    if i == 3:
        print("said in the loop")
    if i == 5 and sys.argv[2] == "raise":
        raise KeyError("in the loop")
print("after")
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", ["whole", "raise"])
def test_on_a_terminal_one_line_is_kept_up_to_date(many_shards: Corpus, end: str) -> None:
    ours, theirs = pty.openpty()
    command = [FORKS.stand_ins() / "python", "-c", LOOP, str(many_shards.list), end]
    env = environment(Path(__file__).parent, TERM="xterm", COLUMNS="120")
    with subprocess.Popen(command, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        screen = read_all(ours)
    os.close(ours)
    assert (run.returncode == 0) == (end == "whole"), screen
    shown = re.findall(r"epoch 0 \| (\d+) utterances", screen)
    assert len(set(shown)) > 2
    assert "\x1b[2K" in screen, "written over"
    assert "said in the loop" in screen
    assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l"), "the cursor is back"
    assert ("KeyError" in screen) == (end == "raise")


def read_all(descriptor: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(descriptor, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()
