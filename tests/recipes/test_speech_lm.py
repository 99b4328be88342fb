"""The speech language model: packed rows give what one row for each utterance gives, and parts never see each other."""

from pathlib import Path
from typing import Any

import pytest
import speech_lm_data
import torch
from torch.nn import functional

import uio_pipes as uio
from recipes.speech_lm.config import Settings, settings_of
from recipes.speech_lm.data import one_a_row, pipeline
from recipes.speech_lm.decode import greedy
from recipes.speech_lm.model import IGNORE, SpeechLM, audio_places, targets

SETTINGS = settings_of(speech_lm_data.TINY)
Batch = dict[str, Any]


def packed(folder: Path) -> Batch:
    """Three rows, as the loader delivers them: audio first."""
    batch: Batch = next(iter(uio.Loader(pipeline(folder, "train", SETTINGS), seed=1)))
    assert len(batch["tokens"]) == 3
    assert len(batch["keys"]) > 3
    assert (batch["segment_ids"] == 0).any()
    return batch | {"feats": batch["feats"].double()}


def inside() -> Batch:
    """Two rows by hand: audio among the tokens, two of it in a part, a part without any, and masked labels."""
    tokens = torch.tensor([[1, 0, 0, 3, 4, 2, 1, 5, 2, 0], [6, 0, 0, 0, 7, 0, 0, 8, 2, 0]])
    segments = torch.tensor([[1, 1, 1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 0]])
    labels = tokens.masked_fill((tokens == 0) | (tokens == 1), IGNORE)
    return {
        "keys": ["a", "b", "c"],
        "tokens": tokens,
        "labels": labels,
        "segment_ids": segments,
        "position_ids": torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2, 0], [*range(9), 0]]),
        "cu_seqlens": torch.tensor([0, 6, 9, 10, 19, 20], dtype=torch.int32),
        "feats": torch.randn(7, 560, dtype=torch.float64, generator=torch.Generator().manual_seed(3)),
        "feats_lengths": torch.tensor([2, 3, 2], dtype=torch.int32),
        "feats_places": torch.tensor([[1, 2], [11, 3], [15, 2]]),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech_lm_data.prepare(tmp_path_factory.mktemp("speech_lm"))


@pytest.fixture(params=["packed", "inside"])
def batch(request: pytest.FixtureRequest, folder: Path) -> Batch:
    return packed(folder) if request.param == "packed" else inside()


def made(settings: Settings = SETTINGS) -> SpeechLM:
    torch.manual_seed(0)
    return SpeechLM(settings.model, 20).double()


def gradients(model: SpeechLM, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss and all its gradients in one row."""
    model.zero_grad()
    loss, labels = model.losses(batch)
    torch.autograd.backward(loss / labels)
    return (loss / labels).detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_a_batch_is_the_sum_of_its_parts(batch: Batch) -> None:
    """What one_a_row does is checked by parts that are given alone, without any padding."""
    model, alone = made(), one_a_row(batch)
    loss, labels = model.losses(batch)
    first, total = 0, torch.zeros((), dtype=torch.float64)
    for row in range(len(alone["tokens"])):
        size = int(alone["segment_ids"][row].sum())
        one = {name: alone[name][row : row + 1, :size] for name in ("tokens", "labels", "position_ids", "segment_ids")}
        width = alone["tokens"].size(1)
        own = alone["feats_places"][:, 0] // width == row
        one["feats_places"] = alone["feats_places"][own] - torch.tensor([row * width, 0])
        one["feats_lengths"] = alone["feats_lengths"][own]
        frames = int(one["feats_lengths"].sum())
        one["feats"], first = batch["feats"][first : first + frames], first + frames
        total = total + model.losses(one)[0]
    assert first == len(batch["feats"])
    assert int(labels) == int((targets(batch) != IGNORE).sum())
    torch.testing.assert_close(loss, total, rtol=1e-12, atol=0)


def test_other_tokens_and_audio_in_a_part_change_no_bit_of_the_others(batch: Batch) -> None:
    model, places = made().float(), audio_places(batch)
    batch = batch | {"feats": batch["feats"].float()}
    before = model(batch)
    changed = batch["segment_ids"] == 1
    here = changed.flatten()[places]
    feats = batch["feats"].masked_fill(here.unsqueeze(1), 0.5)
    tokens = batch["tokens"].masked_fill(changed, 9)
    after = model(batch | {"feats": feats, "tokens": tokens})
    assert not torch.equal(before[changed], after[changed])
    assert torch.equal(before[~changed], after[~changed])


def test_no_place_sees_a_later_token(batch: Batch) -> None:
    model, late = made(), batch["position_ids"] >= 4
    after = model(batch | {"tokens": batch["tokens"].masked_fill(late, 9)})
    torch.testing.assert_close(model(batch)[~late], after[~late], rtol=0, atol=0)


def test_all_of_a_recording_is_seen_by_each_of_its_frames() -> None:
    batch, model = inside(), made()
    feats = batch["feats"].clone()
    feats[-1] += 1.0  # the last frame of the second row
    changed = (model.encode(batch) != model.encode(batch | {"feats": feats})).any(1)
    assert changed.tolist() == [*[False] * 5, True, True]


def test_labels_are_those_of_the_next_place_and_none_crosses_a_boundary() -> None:
    wanted = targets(inside())
    assert wanted[0].tolist() == [IGNORE, IGNORE, 3, 4, 2, IGNORE, 5, 2, IGNORE, IGNORE]
    assert wanted[1].tolist() == [IGNORE, IGNORE, IGNORE, 7, IGNORE, IGNORE, 8, 2, IGNORE, IGNORE]


def test_features_without_places_are_refused(folder: Path) -> None:
    batch = packed(folder)
    batch["feats_places"][0, 1] -= 1
    with pytest.raises(ValueError, match="places= of chat"):
        made()(batch)


def test_learns_a_batch_by_heart_and_transcribes_it(folder: Path) -> None:
    batch, eos = packed(folder), 2
    lengths = batch["feats_lengths"]
    sounds = torch.randn(len(lengths), 560, generator=torch.Generator().manual_seed(2))
    batch["feats"] = sounds.repeat_interleave(lengths, 0)  # easier to tell apart than noise
    model = made().float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss, labels = model.losses(batch)
        torch.autograd.backward(loss / labels)
        optimizer.step()
        losses.append(float(loss.detach()) / int(labels))
    assert losses[0] > 2
    assert losses[-1] < 0.1
    alone = one_a_row(batch)["labels"]
    texts = [row[row != IGNORE].tolist()[:-1] for row in alone]
    assert greedy(model, batch, eos) == texts
    batch["tokens"] = torch.zeros_like(batch["tokens"])  # it is not told what is said
    assert greedy(model, batch, eos) == texts


def test_greedy_search_finds_what_the_whole_model_says() -> None:
    """It computes each place once; here everything is computed anew for each token."""
    model, batch, room = made(), one_a_row(inside()), 4
    found = greedy(model, inside(), eos=-5, room=room)
    for row, first in enumerate([3, 1, 4]):  # of their labels
        one = {"tokens": functional.pad(batch["tokens"][row : row + 1, :first], (0, room))}
        one |= {"segment_ids": torch.ones_like(one["tokens"]), "position_ids": torch.arange(first + room).unsqueeze(0)}
        own = slice(0, 1) if row == 0 else slice(1, 2) if row == 2 else slice(0, 0)
        one |= {"feats_places": torch.tensor([[1, 2], [1, 3]])[own], "feats_lengths": batch["feats_lengths"][own]}
        one["feats"] = batch["feats"][{0: slice(0, 2), 1: slice(0, 0), 2: slice(2, 5)}[row]]
        for at in range(first, first + room):
            one["tokens"][0, at] = model(one)[0, at - 1].argmax()
        assert one["tokens"][0, first:].tolist() == found[row]
