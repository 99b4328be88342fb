"""From ``WenetSpeech.json`` to lists: ``python -m recipes.wenetspeech.prepare CORPUS DATA --subset L``.

::

    DATA/{train,dev,test_net,test_meeting}/data.list    raw list: segments of the recordings (start, end), no copies
    DATA/…/{wav.scp,segments,text}                      the same for Kaldi's tools
    DATA/left_out.jsonl                                 the segments that cannot be used, and why

The training subset is chosen as the authors of the corpus did it: by the ``subsets`` of a segment and by its confidence
(S and M: 1.0; L: at least 0.95; W, the weakly labelled part: at least 0.6). ``--min-confidence`` changes the limit.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO

import soundfile
import typer

from uio_pipes.audio.decode import TOLERANCE
from uio_pipes.io.files import atomic_path
from uio_pipes.tools.data.common import progress_bar
from uio_pipes.tools.data.reading import Utterance

from ..common.corpus import CorpusMissing
from ..common.lists import ListWriter
from ..common.problems import told
from .layout import TEST_SUBSETS, BadMetadata, metadata_path, recordings

MIN_CONFIDENCE = {"S": 1.0, "M": 1.0, "L": 0.95, "W": 0.6}
UNKNOWN = 2**62  # libsndfile's count of samples is above this if the header has none

_LETTERS = "[A-Z]"
_BETWEEN_WORDS = re.compile(rf"(?<={_LETTERS})\s+(?={_LETTERS})")
_BLANKS = re.compile(r"[\s\ufeff\u200b]+")


@dataclass
class Prepared:
    """The result. ``left_out``: the number of segments that cannot be used, by reason."""

    utterances: Counter[str] = field(default_factory=Counter)
    hours: dict[str, float] = field(default_factory=dict)
    recordings: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    not_chosen: int = 0

    def __str__(self) -> str:
        lines = [
            f"  {name:13} {count:>10} utterances {self.hours[name]:>10.2f} h {self.recordings[name]:>7} recordings"
            for name, count in self.utterances.items()
        ]
        lost = ", ".join(f"{count} {reason}" for reason, count in sorted(self.left_out.items())) or "none"
        return "\n".join([*lines, f"  in no chosen subset: {self.not_chosen}; left out: {lost}"])


def normalize(text: str) -> str:
    """Return a transcript as users of WenetSpeech train on it: in upper case, without blanks (ideographic ones and byte
    order marks, too). One blank stays between two words in Latin letters; the character tokenizer turns it into ``▁``.
    """
    words = _BETWEEN_WORDS.sub("\0", text.strip().upper())
    return _BLANKS.sub("", words).replace("\0", " ")


def prepare(root: Path, out: Path, subset: str = "L", min_confidence: float | None = None) -> Prepared:
    """Write the lists of the training ``subset`` and of the three held-out sets.

    Raises: CorpusMissing, BadMetadata.
    """
    chosen = {subset: "train", **TEST_SUBSETS}
    lowest = MIN_CONFIDENCE[subset] if min_confidence is None else min_confidence
    least = dict.fromkeys(TEST_SUBSETS, 0.0) | {subset: lowest}
    with ExitStack() as stack:
        writers = {name: stack.enter_context(ListWriter(out / name)) for name in chosen.values()}
        temporary = stack.enter_context(atomic_path(out / "left_out.jsonl"))
        log = stack.enter_context(temporary.open("w", encoding="utf-8"))
        sorter = _Sorter(root.resolve(), chosen, least, writers, log)
        _follow(root, sorter)
        result = sorter.result
    for name, writer in writers.items():
        result.utterances[name] = writer.utterances
        result.hours[name] = writer.seconds / 3600
        result.recordings[name] = writer.recordings
    return result


def _follow(root: Path, sorter: _Sorter) -> None:
    """Take every recording of the corpus, with a bar that counts segments; their total is only known at the end."""
    with progress_bar() as bar:
        task = bar.add_task(f"reading {metadata_path(root).name}", total=None)
        for recording in recordings(root):
            sorter.take(recording)
            bar.advance(task, len(recording.get("segments") or ()))


class _Sorter:
    """Puts each segment into its list, or leaves it out."""

    def __init__(
        self, root: Path, chosen: dict[str, str], least: dict[str, float], writers: dict[str, ListWriter], log: TextIO
    ) -> None:
        self.root, self.chosen, self.least, self.writers, self.log = root, chosen, least, writers, log
        self.result = Prepared()

    def take(self, recording: dict[str, Any]) -> None:
        """Take all segments of a recording. Its file is opened once, and only if a segment is wanted."""
        wanted = [(segment, name) for segment in recording.get("segments") or () if (name := self._name(segment))]
        if not wanted:
            return
        path = self.root / str(recording.get("path", ""))
        seconds = _seconds(path)
        for segment, name in wanted:
            text = normalize(str(segment.get("text") or ""))
            reason = seconds if isinstance(seconds, str) else _problem(segment, text, seconds)
            if reason:
                self._leave_out(recording, segment, reason, path)
                continue
            start, end = float(segment["begin_time"]), float(segment["end_time"])
            utterance = Utterance(segment["sid"], str(path), text, start, end, str(recording.get("aid", "")))
            self.writers[name].write(utterance)

    def _name(self, segment: dict[str, Any]) -> str | None:
        for subset in segment.get("subsets") or ():
            if subset in self.chosen and float(segment.get("confidence") or 0) >= self.least[subset]:
                return self.chosen[subset]
        self.result.not_chosen += 1
        return None

    def _leave_out(self, recording: dict[str, Any], segment: dict[str, Any], reason: str, path: Path) -> None:
        self.result.left_out[reason] += 1
        line = {"key": segment.get("sid"), "reason": reason, "wav": str(path), "start": segment.get("begin_time"),
                "end": segment.get("end_time"), "recording": recording.get("aid")}  # fmt: skip
        self.log.write(json.dumps(line, ensure_ascii=False) + "\n")


def _seconds(path: Path) -> float | str:
    """Return the length by the file's own header (the JSON is sometimes wrong), or what is wrong with the file."""
    if not path.is_file():
        return "missing_file"
    try:
        info = soundfile.info(str(path))
    except soundfile.SoundFileError:
        return "bad_audio"
    return float(info.frames / info.samplerate) if 0 < info.frames < UNKNOWN else "bad_audio"


def _problem(segment: dict[str, Any], text: str, seconds: float) -> str:
    """Return the reason why a segment cannot be used; ``""`` if it can."""
    start, end = segment.get("begin_time"), segment.get("end_time")
    if not isinstance(start, (int, float)) or not isinstance(end, (int, float)) or not segment.get("sid"):
        return "incomplete_entry"
    if not 0 <= start < end:
        return "bad_segment"
    if end > seconds + TOLERANCE:
        return "past_the_end"
    return "" if text else "empty_text"


def main(
    corpus: Annotated[Path, typer.Argument(help="Folder with `WenetSpeech.json` and `audio` in it.")],
    out: Annotated[Path, typer.Argument(help="Folder for the lists.")],
    subset: Annotated[str, typer.Option(help="S (100 h), M (1000 h), L (10,000 h) or W (weakly labelled).")] = "L",
    min_confidence: Annotated[float | None, typer.Option(help="Lowest confidence of training segments.")] = None,
) -> None:
    """Write the lists of a subset of WenetSpeech, real or mini."""
    if subset not in MIN_CONFIDENCE:
        typer.echo(f"there is no subset {subset}; take one of {', '.join(MIN_CONFIDENCE)}", err=True)
        raise typer.Exit(2)
    with told(CorpusMissing, BadMetadata):
        typer.echo(f"{out}:\n{prepare(corpus, out, subset, min_confidence)}")


if __name__ == "__main__":
    typer.run(main)
