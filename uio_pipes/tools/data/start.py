"""``uio start``: a training script for data, written from what ``uio inspect`` sees in them."""

from __future__ import annotations

import ast
import json
import runpy
from dataclasses import dataclass
from itertools import starmap
from math import ceil
from pathlib import Path
from textwrap import wrap

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import plural, redact
from uio_pipes.run.loader import Loader
from uio_pipes.tools.data.dictionary import characters
from uio_pipes.tools.data.recognize import Recognized
from uio_pipes.tools.reports.inspect import Contents, inspect

LOOKED_AT = 5_000  # utterances, if no other number is given
RATE = 16_000  # Hz, of audio whose rates differ
USUAL = 12_000  # frames of a batch
BATCHES = 24  # of an epoch of few data, if they have at least so many utterances:
LEAST = 4
COLUMNS = 82  # of a line, behind the four blanks
TRIED = 20  # utterances that the script gives, at least, when it is tried
LONG = 3_000  # frames of an utterance, above which few models go

SCRIPT = '''"""Train on {path}. Written by `uio start`, which saw {seen}.{notes}"""

import os

import torch
import uio_pipes as uio
{imports}
pipeline = (
    {stages}
)

if __name__ == "__main__":
    loader = uio.Loader(pipeline, seed=777, num_workers={workers})
    if os.path.exists("{checkpoint}"):
        loader.load_state_dict(torch.load("{checkpoint}", weights_only=True))
    for epoch in range(loader.epoch, 2):
        loader.set_epoch(epoch)  # keeps the position of a loaded state of this epoch
        for batch in loader:  # {gives}
            ...  # your training step
            shape, count = tuple(batch["{shown}"].shape), loader.stats().batches
            print(f"epoch {{epoch}}, batch {{count}}: {shown} {{shape}}", flush=True)
            torch.save(loader.state_dict(), "{checkpoint}.new")  # a few kB of text
            os.replace("{checkpoint}.new", "{checkpoint}")  # a kill leaves it whole
        print(f"epoch {{epoch}}: {{loader.stats()}}")
'''


@dataclass(frozen=True)
class Begun:
    """A training script, the name of its table of characters, the tokens of that table, none without texts, and what
    was seen of the data."""

    script: str
    table: str
    tokens: list[str]
    seen: Contents


def begin(data: Recognized, table: str, limit: int = LOOKED_AT, checkpoint: str = "train.pt") -> Begun:
    """Look at ``data``, at most at ``limit`` utterances, and return what a training on them begins with.

    ``table``: path of the table of characters that the script reads; ``checkpoint``: of the file that it writes.

    Raises: ListError if no script can be written for such data, saying what to do.
    """
    seen = inspect(data.pipeline, limit=limit)
    if seen.fields["messages"] or not data.call:
        raise ListError(f"{data.path} is a {data.kind}, whose script is to be written: docs/conversations.md has one")
    if not seen.utterances:
        why = seen.reports[0] if seen.reports else "it has none"
        raise ListError(f"{data.path} has no utterance that can be read: {why}")
    texts = [*seen.characters, *(str(sample["txt"]) for sample in seen.samples)]  # which have blanks, too
    tokens = characters(texts) if seen.characters else []
    has_audio, featured = bool(seen.fields["wav"]), bool(seen.fields["feat"])
    if not (has_audio or featured or tokens):
        raise ListError(f"{data.path} has neither audio, features nor texts: --fields names them as they are there")
    stages = [(data.call, data.kind), *(_audio(seen) if has_audio and not featured else [])]
    if tokens:
        of = "" if seen.whole else f" of what was seen; all: uio dict {redact(data.path)} FILE"
        code = f".tokenize(uio.CharTokenizer({json.dumps(table, ensure_ascii=False)}))"
        stages.append((code, f"{plural(len(tokens), 'token')}: characters{of}"))
    stages += _batches(seen, has_audio or featured)
    notes = wrap("".join(f"{line}. " for line in data.notes), 88)
    what = plural(seen.utterances, "utterance") + (f" ({seen.hours:.2f} h)" if seen.seconds else "")
    quotable = str.maketrans({"\\": "\\\\", '"': "'"})
    script = SCRIPT.format(
        path=redact(data.path).translate(quotable),
        notes="".join(f"\n{line}" for line in notes).translate(quotable),
        seen=what if seen.whole else f"the first {what}",
        imports=data.imports,
        stages="\n    ".join(starmap(_line, stages)),
        workers=2 if seen.utterances >= 1_000 else 0,
        gives=("keys, feats, feats_lengths" if has_audio or featured else "keys")
        + ", target, target_lengths" * bool(tokens),
        shown="feats" if has_audio or featured else "target",
        checkpoint=checkpoint,
    )
    return Begun(script, table, tokens, seen)


def tried(script: Path) -> str:
    """Run the pipeline of a script until it gave 20 utterances, and return what came of it.

    Raises: ListError if nothing did.
    """
    pipeline = runpy.run_path(str(script), run_name="started")["pipeline"]
    loader, given, batches = Loader(pipeline), 0, 0
    for batch in loader:
        given, batches = given + len(batch["keys"]), batches + 1
        if given >= TRIED:
            break
    if not given:
        raise ListError(f"{script} is written, but it delivers nothing: {loader.stats()}")
    lost = loader.stats().failures
    well = "all well" if not lost else f"{plural(lost, 'utterance')} failed"
    return f"tried, it gave {plural(given, 'utterance')} in {plural(batches, 'batch')}, {well}"


def _line(code: str, why: str) -> str:
    """Return a line of the script with its comment, which stands above it if both are long."""
    line = f"{code}  # {why}" if why else code
    if len(line) <= COLUMNS:
        return line
    above = [f"# {part}" for part in wrap(why, COLUMNS - 2)]
    return "\n    ".join([*above, code if len(code) <= COLUMNS or code[0] == "." else _wrapped(code)])


def _wrapped(code: str) -> str:
    """Return a call with each of its arguments on a line of its own."""
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    given = [("", each) for each in call.args] + [(f"{each.arg}=", each.value) for each in call.keywords]
    lines = [f"    {name}{ast.get_source_segment(code, value)}," for name, value in given]
    return "\n    ".join([f"{ast.get_source_segment(code, call.func)}(", *lines, ")"])


def _audio(seen: Contents) -> list[tuple[str, str]]:
    """Return the stages from audio to features, each with the reason for it."""
    rates = ", ".join(f"{rate:,} Hz: {n:,}" for rate, n in seen.rates.most_common(4))
    codecs = ", ".join(f"{codec}: {n:,}" for codec, n in seen.codecs.most_common(4))
    stages = [(".decode_audio()", codecs)]
    if any(channels > 1 for channels in seen.channels):
        channels = ", ".join(f"{plural(c, 'channel')}: {n:,}" for c, n in sorted(seen.channels.items()))
        stages = [(".decode_audio(channel=None)", codecs), (".mono()", f"the mean of the channels; {channels}")]
    if len(seen.rates) > 1 or seen.unknown_rates or not seen.rates:
        stages.append((f".resample({RATE:_})", rates or "the rates are not in the headers"))
        rates = ""
    return [*stages, (".fbank(num_mel_bins=80)", rates), (".spec_aug()", "masks, for training only")]


def _batches(seen: Contents, has_audio: bool) -> list[tuple[str, str]]:
    """Return the stages that make batches by frames, with a budget from the data, or of texts."""
    if not has_audio:
        size = max(1, min(32, seen.utterances // BATCHES))
        return [(".shuffle(1_500)", ""), (f".batch({size})", "texts"), (".pad()", "")]
    longest, frames = ceil(100 * seen.longest[0]) if seen.longest else 0, int(100 * seen.seconds)
    stages, budget, why = [], USUAL, "longest × count, of neighbours by length"
    if longest > LONG:
        stages.append((f".filter(max_frames={LONG:_})", f"30 s; the longest has {longest / 100:,.0f} s"))
        longest = LONG
    if seen.whole and longest and frames < BATCHES * USUAL:
        least = max(LEAST * longest, frames // BATCHES)
        unit = 10 ** max(0, len(str(least)) - 2)  # to two digits
        budget, why = -(-least // unit) * unit, f"{why}; {USUAL:,} is usual, but the data are few"
    return [*stages, (f".bucket_batch(max_frames={budget:_})", why), (".pad()", "")]
