"""Question: in a mix with little noisy speech, do weights that follow the loss (``uio.follow``) reach a lower character
error rate on noisy speech than fixed weights, in the same number of steps, and at which price on clean speech?

The corpus is strings of four digits, spoken as the recipes' mini corpora are: half of the training recordings as they
are, the others with noise at -6 to 0 dB, drawn anew each time. The mix is given with 9 parts of clean and 1 part of
noisy speech. Three trainings of a small CTC model, equally long, from the same weights and with the same seed of the
loader, differ in the mix alone. Its weights stay as given; or are equal from the beginning, which takes no rule; or
begin as given and follow the loss by the default rule. Each test recording, of other speakers and strings, is decoded
greedily as it is, and with noise at -3 dB. Noise and number of steps were chosen by a trial with another seed:
``python -m benchmarks.follow``.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import Report, begin, child, parser, sized

MODULE = "benchmarks.follow"
SIZES = {"train": sized(400, 20), "test": sized(120, 10)}
STEPS, EVERY, BATCH = sized((400, 50, 8), (12, 4, 4))
GIVEN = {"clean": 0.9, "noisy": 0.1}
WAYS = {"as given": GIVEN, "equal": {"clean": 1.0, "noisy": 1.0}, "follow": GIVEN}
SEEDS = sized((1, 2, 3, 4, 5, 6, 7, 8), (1,))
SNR, TEST_SNR = (-6.0, 0.0), (-3.0, -3.0)
BINS, WIDTH = 16, 48


def measure(data: str, seed: int) -> dict[str, Any]:
    """Train in each way, one after the other."""
    return {way: train(Path(data), way, seed) for way in WAYS}


def train(folder: Path, way: str, seed: int) -> dict[str, Any]:
    """Train once: errors of clean and noisy speech, the percentage heard of noisy speech, and the weights given."""
    import torch

    import uio_pipes as uio

    torch.manual_seed(seed)
    tokenizer = uio.CharTokenizer(folder / "lang_char.txt")

    def source(part: str, snr: tuple[float, float] | None) -> uio.Pipeline:
        speech = uio.from_raw_list(folder / f"{part}.list", shuffle=part != "test").decode_audio()
        return speech if snr is None else speech.add_noise(str(folder / "noise.list"), snr=snr)

    def features(speech: uio.Pipeline) -> uio.Pipeline:
        return speech.tokenize(tokenizer).fbank(num_mel_bins=BINS, frame_shift=20)

    mixed = uio.mix({"clean": source("clean", None), "noisy": source("noisy", SNR)}, WAYS[way], stop="endless")
    loader = uio.Loader(features(mixed).shuffle(50).batch(BATCH).pad(), seed=seed, steps_per_epoch=STEPS)
    symbols = [line.split()[0] for line in (folder / "lang_char.txt").read_text().splitlines()]
    model = small_model(len(symbols))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    with tempfile.TemporaryDirectory() as place, uio.Recorder(place, loader) as record:
        if way == "follow":
            uio.follow(record, every=EVERY)
        for step, batch in enumerate(loader):
            for group in optimizer.param_groups:
                group["lr"] = 0.005 * min((step + 1) / (STEPS // 6), (STEPS - step) / (STEPS * 5 / 6))
            losses = losses_of(*log_probs(model, batch), batch)
            optimizer.zero_grad()
            losses.mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            record.log(batch, loss=losses)
        heard = loader.stats().sources
        mixes: Any = json.loads(loader.state_dict()["meta"])["mixes"]
    found: dict[str, Any] = {"heard": 100 * heard["noisy"] / sum(heard.values())}
    found["weights"] = [entry["weights"] for entry in mixes[""]["journal"]]
    for name, snr in {"clean": None, "noisy": TEST_SNR}.items():
        graph = features(source("test", snr)).batch(16).pad(keep=["txt"])
        found[name] = errors(model.eval(), graph, symbols)
    return found


def small_model(labels: int) -> Any:
    """Convolutions over time, every second frame: (B, F, T) → (B, labels, ⌈T / 2⌉)."""
    from torch import nn

    layers: list[nn.Module] = []
    for into, stride in ((BINS, 2), (WIDTH, 1), (WIDTH, 1), (WIDTH, 1)):
        layers += [nn.Conv1d(into, WIDTH, 5, stride, 2), nn.BatchNorm1d(WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv1d(WIDTH, labels, 1))


def log_probs(model: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
    """Return log-probabilities (B, T, labels), and how many of them there are of each."""
    scores = model(((batch["feats"] - 8) / 4).transpose(1, 2)).transpose(1, 2)
    return scores.log_softmax(-1), (batch["feats_lengths"].long() + 1) // 2


def losses_of(probs: Any, lengths: Any, batch: dict[str, Any]) -> Any:
    """Return the CTC loss of each utterance, for a character (B,)."""
    from torch.nn.functional import ctc_loss

    labels = batch["target"].clamp(min=0), lengths, batch["target_lengths"]
    losses = ctc_loss(probs.transpose(0, 1), *labels, reduction="none", zero_infinity=True)
    return losses / batch["target_lengths"]


def errors(model: Any, graph: Any, symbols: list[str]) -> tuple[float, float]:
    """Return the character error rate of greedy decoding, in percent, and the mean loss for a character."""
    import torch

    import uio_pipes as uio
    from recipes.common.score import score
    from recipes.common.search import ctc_greedy_search

    said, found, losses = dict[str, str](), dict[str, str](), list[float]()
    for batch in uio.Loader(graph):
        with torch.no_grad():
            probs, lengths = log_probs(model, batch)
        losses += losses_of(probs, lengths, batch).tolist()
        said |= zip(batch["keys"], batch["txt"], strict=True)
        best = ctc_greedy_search(probs, lengths)
        found |= {
            key: "".join(map(symbols.__getitem__, one[0].labels)) for key, one in zip(batch["keys"], best, strict=True)
        }
    return score(said, found).cer, statistics.mean(losses)


def speak_digits(folder: Path) -> None:
    """Make the recordings, their lists and the noises."""
    from recipes.common.spoken import Settings, Utterance, deal, speak
    from recipes.common.templates import Templates
    from uio_pipes.io.files import write_lines
    from uio_pipes.tools.data.dictionary import characters, write_table
    from uio_pipes.tools.data.example_speech import RATE, draw_voice, noises
    from uio_pipes.tools.data.writing.cutting import encode

    texts = Templates({"digit": tuple("零一二三四五六七八九"), "sentence": ("{digit} {digit} {digit} {digit}",)})
    plan: list[Utterance] = []
    parts: dict[str, list[str]] = {"clean": [], "noisy": [], "test": []}
    for split, size in SIZES.items():
        rng = random.Random(f"1 {split}")
        dealt = deal(size, rng, partial(draw_voice, rng), partial(texts.draw, split, rng))
        for speaker, number, text, voice in dealt:
            key, said = f"{split}{speaker:02d}_{number:02d}", text.replace(" ", "")
            plan.append(Utterance(key, split, Path(f"{key}.wav"), text, said, voice))
            row = json.dumps({"key": key, "wav": str(folder / "wav" / f"{key}.wav"), "txt": said})
            parts["test" if split == "test" else ("clean", "noisy")[number % 2]].append(row)
    speak(folder / "wav", "strings of digits", Settings(1, SIZES["train"]), plan, lambda _: None)
    for part, rows in parts.items():
        write_lines(folder / f"{part}.list", rows)
    write_table(folder / "lang_char.txt", characters(one.said for one in plan))
    names = [folder / f"noise{number}.wav" for number, _ in enumerate(noises(1))]
    for name, samples in zip(names, noises(1), strict=True):
        name.write_bytes(encode(samples, RATE, "wav"))
    write_lines(folder / "noise.list", map(str, names))


def main() -> None:
    """Measure all and write results/follow.md."""
    arguments = begin(measure, parser(__doc__, repeats=1))
    data = arguments.data / f"follow_{SIZES['train']}"
    if not (data / "noise.list").exists():
        data.mkdir(parents=True, exist_ok=True)
        speak_digits(data)
    report = Report("follow", "Weights of a mix that follow the loss")
    found = {seed: child(MODULE, data=data, seed=seed) for seed in SEEDS}
    for seed in [seed for seed, one in found.items() if "error" in one]:
        report.text(f"- seed {seed} did not run: {found.pop(seed)['error']}")
    rates = {(way, part): [one[way][part][0] for one in found.values()] for way in WAYS for part in GIVEN}
    rows = []
    for way in WAYS:
        mine = [one[way] for one in found.values()]
        cells = [spread(rates[way, part]) for part in GIVEN] + [spread([one["clean"][1] for one in mine], 4)]
        rows.append([way, *cells, f"{statistics.mean(one['heard'] for one in mine):.0f} %"])
    columns = ["weights", "CER %, clean", "CER %, noisy", "loss for a character, clean", "heard of noisy speech"]
    title = f"{STEPS} steps of {BATCH} utterances, {len(found)} seeds: means, and standard deviations between seeds"
    report.table(title, columns, rows)
    each = [[str(seed), *(f"{one[way]['noisy'][0]:.1f}" for way in WAYS)] for seed, one in found.items()]
    report.table("CER % on noisy speech, seed by seed", ["seed", *WAYS], each)
    shares = [
        [weights["noisy"] / sum(weights.values()) for weights in one["follow"]["weights"]] for one in found.values()
    ]
    went = ", ".join(f"{statistics.mean(at):.2f}" for at in zip(*shares, strict=True))
    report.text(f"Share of noisy speech in the weights of follow, given anew every {EVERY} steps, means: {went}.")
    for other in ("as given", "equal"):
        less = [theirs - mine for mine, theirs in zip(rates["follow", "noisy"], rates[other, "noisy"], strict=True)]
        told = f"{spread(less)} points less; less with {sum(one > 0 for one in less)} of {len(less)} seeds"
        claim = f"follow has a lower error rate on noisy speech than weights that are fixed {other}"
        report.target(claim, statistics.mean(less) > 0, told)
    report.write()


def spread(values: list[float], digits: int = 1) -> str:
    """Return the mean and the standard deviation."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {deviation:.{digits}f}"


if __name__ == "__main__":
    main()
