"""The files that a decoding writes at its end, all in the order of the input.

::

    EXP/test.attention.hyp       KEY text                every utterance once; without a text if it failed
    EXP/test.attention.failed    KEY reason              those that failed, if any did (WeNet just leaves them out)
    EXP/test.attention.nbest     KEY index score text    if more than one was asked for; index from 1, best first
    EXP/test.attention.json      what was decoded, and how; counts and times
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uio_pipes.io.files import write_lines
from uio_pipes.run.partial import DecodedBatch

from .lists import read_lines

__all__ = ["Results", "Summary", "keys_of"]

FRAMES_PER_SECOND = 100
NOT_SEEN = "is in `text`, but was not found in the list, or its shard is damaged"
ADDRESS = re.compile(r" object at 0x[0-9a-f]+")  # in messages of libraries; differs in every run
Texts = list[tuple[float, str]]


@dataclass(frozen=True)
class Summary:
    """The figures of a decoding. ``busy`` are seconds, of all ranks and runs together."""

    utterances: int
    failed: int
    hours: float
    busy: float

    @property
    def real_time_factor(self) -> float:
        """The seconds that one rank works for a second of audio."""
        return self.busy / (self.hours * 3600) if self.hours else 0.0


class Results:
    """The files of one split and mode."""

    def __init__(self, exp: Path, name: str, nbest: bool) -> None:
        self.hyp, self.failed, self._json = (exp / f"{name}.{suffix}" for suffix in ("hyp", "failed", "json"))
        self.nbest = exp / f"{name}.nbest" if nbest else None

    def summary(self, about: Mapping[str, Any]) -> Summary | None:
        """Return the summary of a complete decoding of the same input in the same way; None if there is none."""
        if not (self._json.is_file() and self.hyp.is_file()):
            return None
        found = json.loads(self._json.read_text(encoding="utf-8"))
        return Summary(**found["summary"]) if found["about"] == json.loads(json.dumps(about)) else None

    def write(self, about: Mapping[str, Any], keys: list[str], records: Iterable[DecodedBatch]) -> Summary:
        """Join the records of all ranks. ``keys`` are those of the input, in its order."""
        found: dict[str, list[Texts]] = defaultdict(list)
        reports: list[str] = []
        frames, busy = 0, 0.0
        for record in records:
            for key, texts in record.utterances:
                found[key].append([(score, text) for score, text in texts])
            frames, busy = frames + record.frames, busy + record.seconds
            reports += record.failures
        count = sum(map(len, found.values()))
        failed = [key for key in keys if key not in found]
        order = [(key, texts) for key in _order(keys, found) for texts in sorted(found.get(key, [[]]))]
        self._json.unlink(missing_ok=True)  # written last: the others are then complete
        write_lines(self.hyp, (f"{key} {texts[0][1] if texts else ''}".rstrip() for key, texts in order))
        if self.nbest:
            write_lines(self.nbest, (line for key, texts in order for line in _numbered(key, texts)))
        _write_or_remove(self.failed, _reasons(failed, reports))
        summary = Summary(count, len(failed), frames / FRAMES_PER_SECOND / 3600, busy)
        write_lines(self._json, [json.dumps({"about": about, "summary": asdict(summary)}, ensure_ascii=False)])
        return summary


def keys_of(folder: Path) -> list[str]:
    """Return the keys of a part of the corpus in its order: from ``text``, or from the raw list if there is no
    ``text``."""
    if (folder / "text").is_file():
        return [line.split(maxsplit=1)[0] for line in read_lines(folder / "text")]
    if (folder / "data.list").is_file():
        return [str(json.loads(line)["key"]) for line in read_lines(folder / "data.list")]
    raise FileNotFoundError(f"{folder} has neither `text` nor `data.list`, which give the order: prepare it first")


def _order(keys: list[str], found: Iterable[str]) -> list[str]:
    """Return the keys in the order of the input; unknown keys follow, sorted."""
    known = dict.fromkeys(keys)
    return [*known, *sorted(key for key in found if key not in known)]


def _numbered(key: str, texts: Texts) -> Iterator[str]:
    return (f"{key} {index} {score:.4f} {text}".rstrip() for index, (score, text) in enumerate(texts, 1))


def _reasons(failed: list[str], reports: list[str]) -> list[str]:
    """Return a line for each utterance that failed, then the failures without a key."""
    by_key: dict[str, str] = {}
    others = []
    missing = set(failed)
    for report in sorted({ADDRESS.sub("", report) for report in reports}):
        key = next((key for key in _names(report) if key in missing), None)
        if key is None:
            others.append(f"# {report}")
        else:
            by_key.setdefault(key, report)
    return [*(f"{key} {by_key.get(key, NOT_SEEN)}" for key in failed), *others]


def _names(report: str) -> Iterator[str]:
    """Yield the names that the utterance may have: the member or utterance as it is, or without its suffix."""
    for member in re.findall(r"(?:member|utterance) '([^']*)'", report):
        yield from (member, member.rsplit(".", 1)[0])


def _write_or_remove(path: Path, lines: list[str]) -> None:
    if lines:
        write_lines(path, lines)
    else:
        path.unlink(missing_ok=True)
