"""Stereo dialogues, from files to batches: chunks, codes of both channels by a frozen model, text, delays."""

import json
import os
import signal
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from contract import Case, check_cuts, digest, record, some_cuts
from helpers_bad import run
from journeys import Expected, begun, in_processes

import uio_pipes as uio

RATE, HOP = 8_000, 640  # 12.5 frames a second


def codec(pcm: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two codes for each frame of one channel."""
    assert pcm.ndim == 2
    frames = -(-pcm.shape[1] // HOP)
    whole = torch.nn.functional.pad(pcm, (0, frames * HOP - pcm.shape[1])).unflatten(1, (frames, HOP))
    return torch.stack([(whole[..., n] * 100).round() + 128 for n in (0, 1)], dim=2).to(torch.uint8), -(-lengths // HOP)


def letters(word: str) -> list[int]:
    return [10 + ord(letter) - ord("a") for letter in word]


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of five stereo files, with words beside them as moshi-finetune has them, and one file of one channel."""
    folder = tmp_path_factory.mktemp("dialogues")
    rows = []
    for number in range(6):
        draws = np.random.default_rng(number)
        samples = round((1.9 + 0.7 * number) * RATE)
        wav = draws.uniform(-1, 1, (samples, 1 if number == 4 else 2))
        soundfile.write(folder / f"{number}.wav", wav, RATE)
        times = np.sort(draws.uniform(0, samples / RATE, 9)).round(2)
        words = [["ab" * (n % 3), [at, at + 0.3], ["SPEAKER_MAIN", "x"][n % 2]] for n, at in enumerate(times.tolist())]
        (folder / f"{number}.json").write_text(json.dumps({"alignments": words}))
        rows.append({"key": f"D{number}", "wav": f"{folder}/{number}.wav"})
    (folder / "data.list").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def chunks(folder: Path, **options: Any) -> uio.Pipeline:
    graph = uio.from_raw_list(folder / "data.list", text=None, **options).timeline("{stem}.json")
    return graph.segments(of="recording", cut_seconds=1.0, texts=None).decode_audio(channel=[0, 1])


def coded(folder: Path, **options: Any) -> uio.Pipeline:
    return chunks(folder, **options).encoded(folder / "codes", ["feat"], by="two")


def trained(folder: Path, size: int = 4, **options: Any) -> uio.Pipeline:
    graph = coded(folder, **options).align(letters).delay([0, 0, 1, 0, 1]).batch(size)
    return graph.pad(keep=["loss"], transpose=["feats", "loss"], names={"feats": "codes"})


@pytest.fixture(scope="module")
def encoded(dialogues: Path) -> uio.Stats:
    return uio.encode(uio.Loader(coded(dialogues).batch(3).pad()), codec)


def test_chunks_follow_each_other_and_the_last_one_is_what_is_left(dialogues: Path) -> None:
    samples, loader = run(chunks(dialogues))
    spans = [sample["key"] for sample in samples if sample["key"].startswith("D1")]
    assert spans == ["D1-0000000-0001000", "D1-0001000-0002000", "D1-0002000-0002600"]
    assert [sample["wav"].shape for sample in samples[2:5]] == [(2, 8000), (2, 8000), (2, 4800)]
    assert loader.stats().skipped["no_such_channel"] == 5, "each chunk of the file with one channel"


def test_a_drawn_chunk_has_the_length_or_is_all_there_is(dialogues: Path) -> None:
    drawn = uio.from_raw_list(dialogues / "data.list", text=None)
    drawn = drawn.segments("random", of="recording", cut_seconds=3.0, texts=None).decode_audio()
    assert [sample["wav"].shape[1] for sample in run(drawn)[0]] == [15_200, 20_800, *[24_000] * 4]


def test_each_channel_is_encoded_by_itself(dialogues: Path, encoded: uio.Stats) -> None:
    assert (encoded.utterances, encoded.skipped["no_such_channel"]) == (19, 5)
    audio = {sample["key"]: sample["wav"] for sample in run(chunks(dialogues))[0]}
    samples, loader = run(coded(dialogues))
    assert loader.stats().skipped["not_encoded"] == 5
    for sample in samples:
        wav = audio.pop(sample["key"])
        left, right = (codec(one[None], torch.tensor([wav.shape[1]]))[0][0] for one in wav)
        assert torch.equal(sample["feat"], torch.cat([left, right], dim=1))
    assert not audio


@pytest.mark.usefixtures("encoded")
def test_a_batch_has_text_above_the_codes_of_both(dialogues: Path) -> None:
    batches, _ = run(trained(dialogues))
    first = next(batch for batch in batches if "D3-0002000-0003000" in batch["keys"])
    row = first["codes"][first["keys"].index("D3-0002000-0003000")]
    whole = {sample["key"]: sample for sample in run(coded(dialogues))[0]}["D3-0002000-0003000"]
    words = [event for event in whole["timeline"].events if event.speaker == "SPEAKER_MAIN" and event.start >= 0]
    for event in words:
        assert row[0, int(event.start * 12.5)] == (10 if event.text else 3)
    assert torch.equal(row[1:5:2, :13], whole["feat"].T.long()[::2])
    assert torch.equal(row[2:5:2, 1:13], whole["feat"].T.long()[1::2, :12])
    for batch in batches:
        assert torch.equal(batch["loss"] > 0, batch["codes"] >= 0)


@pytest.mark.usefixtures("encoded")
@pytest.mark.parametrize("options", [{}, {"lanes": 3, "snapshot_every": 2}])
def test_a_resume_within_a_dialogue_is_exact(dialogues: Path, options: dict[str, int]) -> None:
    recorded = record(Case(trained(dialogues, shuffle=True), options))
    check_cuts(recorded, some_cuts(len(recorded.digests)))


@pytest.mark.usefixtures("encoded")
@pytest.mark.parametrize("workers", [0, 1])
def test_killed_on_three_ranks_and_resumed_on_two_nothing_is_lost_or_repeated(dialogues: Path, workers: int) -> None:
    """By SIGKILL in the middle of dialogues, some batches after the state was saved."""
    pipeline, lanes = trained(dialogues, 1), 3
    expected = Expected(pipeline, lanes)

    def leg(world: int, steps: int | None, state: dict[str, str] | None) -> list[Any]:
        def run_rank(rank: int, out: Path) -> None:
            loader = begun(pipeline, (world, workers), rank, state, lanes=lanes)
            batches = iter(loader)
            got = [(digest(batch), batch["keys"]) for batch in islice(batches, steps)]
            out.write_text(json.dumps([got, loader.state_dict()]))
            if steps is not None:
                next(batches)
                os.kill(os.getpid(), signal.SIGKILL)

        return in_processes(world, run_rank)

    first = leg(3, 2, None)
    assert {len(got) for got, _ in first} == {2}
    second = leg(2, None, uio.merge_states([state for _, state in first]))
    for world, steps, made in ((3, 2, first), (2, None, second)):
        for rank, (got, _) in enumerate(made):
            assert [one for one, _ in got] == expected.take(rank, world, steps)
    keys = Counter(key for got, _ in [*first, *second] for _, some in got for key in some)
    assert keys == Counter(sample["key"] for sample in run(coded(dialogues))[0])
    before, after = ({key[:2] for got, _ in made for _, some in got for key in some} for made in (first, second))
    assert before & after, "dialogues of which a part came before, and the rest after"


def test_waveforms_of_several_channels_are_padded(dialogues: Path) -> None:
    (batch, *_), _ = run(chunks(dialogues).batch(3).pad(mask=True))
    assert batch["pcm"].shape == (3, 2, 8000)
    assert batch["pcm_length"].tolist() == [8000, 8000, 7200]
    assert batch["pcm_mask"].shape == (3, 8000)
    audio = {sample["key"]: sample["wav"] for sample in run(chunks(dialogues))[0]}
    for key, row, length in zip(batch["keys"], batch["pcm"], batch["pcm_length"].tolist(), strict=True):
        assert torch.equal(row[:, :length], audio[key])
        assert not row[:, length:].any()


def test_one_channel_and_two_cannot_share_a_batch(dialogues: Path) -> None:
    audio = uio.from_raw_list(dialogues / "data.list", text=None).decode_audio(channel=None)
    with pytest.raises(uio.PipelineError, match=r"pad: D4 has a wav of 1 channels, D3 one of 2; they"):
        run(audio.skip(3).batch(2).pad(order="kept"))
    with pytest.raises(uio.PipelineError, match=r"pack: D0 has 2 channels; .* put \.mono\(\) before"):
        run(audio.pack(max_frames=9_000))


def test_codes_and_features_cannot_share_a_batch() -> None:
    items = [{"key": "A", "feat": torch.ones(5, 4)}, {"key": "B", "feat": torch.ones(4, 4, dtype=torch.int16)}]
    graph = uio.from_iterable(items)
    with pytest.raises(uio.PipelineError, match=r"pad: A has a feat of 4 bins \(torch.float32\), B one of 4; they"):
        run(graph.batch(2).pad())
    with pytest.raises(uio.PipelineError, match=r"pack: B has features of 4 bins \(torch.int64\), others"):
        run(graph.pack(max_frames=100))


def test_codes_are_padded_as_asked() -> None:
    items = [{"key": "A", "feat": torch.ones(3, 2, dtype=torch.int64)}, {"key": "B", "feat": torch.tensor([[7, 8]])}]
    graph = uio.from_iterable(items).batch(2)
    for options, padding in (({}, -1), ({"value": 2048}, 2048), ({"value": {"feats": 0}}, 0)):
        (batch,), _ = run(graph.pad(**options), failures="raise")
        assert batch["feats"].dtype == torch.int64
        assert batch["feats"][1].tolist() == [[7, 8], [padding] * 2, [padding] * 2]
    with pytest.raises(uio.PipelineError, match="value of feats must be a whole number"):
        run(graph.pad(value=0.5))
    (packed,), _ = run(uio.from_iterable(items).pack(max_frames=8, multiple_of=2, fixed=True), failures="raise")
    assert packed["feats"][:, 0].tolist() == [1, 1, 1, -1, 7, -1, -1, -1]
