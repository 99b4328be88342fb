"""Converting data from any readable form to a TouchDataset, WeNet's shards, a raw list or Lhotse's cuts.

It is read as training reads it. Each part (a folder of a TouchDataset, a shard) takes ``per_part`` utterances in order
and is moved to its place when it is complete; after a kill, the same call goes on. Utterances that cannot be converted
are counted under their reasons and listed in ``failed.jsonl``.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from uio_pipes.audio.length import audio_info
from uio_pipes.audio.recording import Recording
from uio_pipes.base.errors import DataError, ListError
from uio_pipes.base.processes import window
from uio_pipes.base.urls import counted
from uio_pipes.core.lane import Lane
from uio_pipes.core.realize import compute
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node
from uio_pipes.formats.naming import TEXTLESS
from uio_pipes.io.local import Ref, open_data
from uio_pipes.io.lookahead import Whole
from uio_pipes.io.nearby import Nearby
from uio_pipes.pipeline import Pipeline
from uio_pipes.prep.common import Noting, follow
from uio_pipes.prep.pack import WHOLE
from uio_pipes.prep.reading.data_list import count_utterances
from uio_pipes.prep.recognize import Recognized, recognize
from uio_pipes.prep.writing.cuts import CutsPart, Referred, recording_of
from uio_pipes.prep.writing.cutting import FileForm, Form, to_int16, whole_file
from uio_pipes.prep.writing.files import Folder, write_to
from uio_pipes.prep.writing.journal import LIST, Finished, Journal, write_failures, write_shard_list
from uio_pipes.prep.writing.shards import Converted, Kept, Part, RawPart, TarPart, open_part
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.sources.lhotse.recording import Recorded
from uio_pipes.sources.lhotse.stored import StoredArray
from uio_pipes.sources.lhotse.transforms import samples_in

To = Literal["indexed", "shards", "raw", "cuts"]
_NAMES = {"indexed": "data-{:05d}", "shards": "shards_{:09d}.tar", "raw": "wav-{:05d}", "cuts": "cuts-{:05d}"}


@dataclass
class Conversion:
    """The result of a conversion, over all of its runs. ``dropped``: fields that the new form has no place for."""

    data_list: str = ""
    parts: int = 0
    utterances: int = 0
    frames: int = 0
    bytes: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    dropped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        hours = self.frames / 360_000
        size = f"{hours:.2f} h, {self.bytes / 1e6:.1f} MB in {counted(self.parts, 'part')}"
        text = f"{counted(self.utterances, 'utterance')}, {size}"
        lost = ", ".join(f"{count} {reason}" for reason, count in sorted(self.failed.items()))
        text += f"; left out: {lost}" if lost else ""
        return text + (f"; without the fields {', '.join(self.dropped)}" if self.dropped else "")


def convert(
    source: str,
    out: str,
    *,
    to: To = "indexed",
    per_part: int = 5000,
    resample: int | None = None,
    form: Form = "wav",
    compress: bool = False,
    list_path: str | None = None,
    fields: Mapping[str, str] | None = None,
    needs_text: bool = True,
    allow_pipes: bool = False,
    jobs: int = 1,
) -> Conversion:
    """Convert the data of ``source``, all that :func:`recognize` knows and that has audio, to ``out``.

    Mono, 16 bits, the first channel; but cuts refer to audio that is a file of its own, and only other audio is
    written (all of it with ``resample``). ``resample``: to that rate in Hz, otherwise each keeps its own. ``form``: of
    audio files in shards, raw lists and cuts; "as-is", in shards: whole files unchanged. ``compress``: shards, with
    zstd and checksums. ``list_path``: the list written at the end, by default :func:`list_name` in OUT.
    ``fields``: names that fields have in the data, by ours. ``needs_text``: False if utterances may have no transcript;
    those of cuts may have none anyway. ``jobs``: threads that decode.
    ``allow_pipes``: run the commands in a Kaldi folder's ``wav.scp``.

    Raises: ListError, OtherPacking.
    """
    known = recognize(source, allow_pipes, fields)
    if known.lacks:
        raise ListError(f"{source} has {known.lacks} to convert: it is {known.kind}, and is read as it is")
    pipeline = known.pipeline
    fingerprint = pipeline._list_fingerprint()  # reads the source first: nothing is written if it is missing
    folder = Folder(out)
    target = list_path or folder.join(list_name(to))
    journal = Journal(folder, WHOLE)
    try:
        settings: dict[str, Any] = {"to": to, "per_part": per_part, "resample": resample, "format": form}
        settings |= ({"fields": fields} if fields else {}) | ({} if needs_text else {"text": ""})
        name = _NAMES[to] + (".zst" if compress and to == "shards" else "")
        journal.take_over({"source": fingerprint, **settings, **({"name": name} if name != _NAMES[to] else {})})
        as_is = form == "as-is" and to == "shards"
        file_form: FileForm = "flac" if form == "flac" else "wav"
        work = _Work(pipeline, folder, journal, to, per_part, file_form, name, needs_text, as_is)
        with one_thread():
            work.run(resample, jobs, _total(known))
        return work.finish(target, source)
    finally:
        journal.close()


def list_name(to: To) -> str:
    """Return the usual name of the list that is written."""
    return "cuts.jsonl.gz" if to == "cuts" else "data.list"


def _total(source: Recognized) -> int | None:
    """Return the number of utterances, if a list, an index or a manifest gives it."""
    if counts := source.pipeline._count(1):
        return counts[0]
    return count_utterances(source.path, "shard") if source.kind == "shard list" else None


class _Work:
    def __init__(
        self, pipeline: Pipeline, folder: Folder, journal: Journal, to: To, per_part: int, form: FileForm, name: str,
        needs_text: bool, as_is: bool,
    ) -> None:  # fmt: skip
        self.as_is = as_is
        self.pipeline, self.folder, self.journal, self.needs_text = pipeline, folder, journal, needs_text
        self.to, self.per_part, self.form, self.name = to, per_part, form, name
        self.ledger = Noting()
        self.make: Callable[[Sample], Converted | Kept | Referred | DataError] = partial(_decode, needs_text=needs_text)
        self.dropped: set[str] = set()
        self.names: list[str] = []

    def run(self, resample: int | None, jobs: int, total: int | None) -> None:
        """Convert all parts that are not there yet, of ``total`` utterances."""
        decoded = self.pipeline.decode_audio(longest=None)
        graph = decoded.resample(resample) if resample is not None else decoded
        if self.to == "cuts":
            self.make = _refer if resample is None else partial(_decode, needs_text=False)
        elif self.to == "shards":
            self.make = partial(_decode, needs_text=self.needs_text, keeps=TarPart.keeps)
            if self.as_is:
                self.make = partial(_keep, needs_text=self.needs_text, sample_rate=resample)
        node = graph._nodes(Lane(self.ledger, needs_text=self.needs_text))
        node.reset(None)
        with ThreadPoolExecutor(jobs) as pool:
            parts = self._parts(node, pool, jobs)
            for _ in follow(parts, "converting", total):
                pass

    def _parts(self, node: Node, pool: ThreadPoolExecutor, jobs: int) -> Iterator[tuple[None, int]]:
        done = self.journal.settled()
        ended = False
        while not ended:
            name = self.name.format(len(self.names))
            self.names.append(name)
            if name in done:
                passed = self._pass_over(node)
                ended = passed < self.per_part
                yield None, passed
                continue
            taken, lost = 0, list[list[str]]()
            work = ((sample, (self.make, sample)) for sample in _samples(node, self.per_part))
            with self._part(name) as part:
                for sample, result in window(pool.submit, work, 2 * jobs + 2):
                    taken += 1
                    yield None, 1
                    if isinstance(result, DataError):
                        lost.append([sample.key, result.reason, str(result)])
                    else:
                        part.add(result)
            lost += ([error.member, error.reason, str(error)] for error in self.ledger.take())
            ended = taken < self.per_part
            self.dropped |= part.dropped
            if taken or lost:
                self.journal.add(replace(part.done, failed=[*lost, *part.done.failed]))
            else:
                self.names.pop()

    def _part(self, name: str) -> Part:
        if self.to in ("raw", "cuts"):
            return (RawPart if self.to == "raw" else CutsPart)(self.folder, name, str(WHOLE), self.form)
        return open_part(self.folder, name, str(WHOLE), self.form)

    def _pass_over(self, node: Node) -> int:
        """Pass over the utterances of a finished part, without decoding them or noting failures again."""
        self.ledger.quiet = True
        try:
            return sum(1 for _ in _samples(node, self.per_part))
        finally:
            self.ledger.quiet = False

    def finish(self, target: str, source: str) -> Conversion:
        """Write the list, which names complete parts only, and the failures."""
        finished = [self.journal.finished[name] for name in self.names]
        failures = list(self.journal.failures(set(self.names)))
        total = Conversion(target, failed=Counter(reason for _, reason, _ in failures), dropped=sorted(self.dropped))
        for one in finished:
            total.parts += one.utterances > 0
            total.utterances += one.utterances
            total.frames += one.frames
            total.bytes += one.bytes
        write_failures(self.folder, failures)
        if not total.utterances:
            first = f"; the first: {failures[0][2]}" if failures else ""
            raise ListError(f"nothing of {source} could be converted: {total}{first}")
        self._write_list(target, [one for one in finished if one.utterances])
        return total

    def _write_list(self, target: str, finished: list[Finished]) -> None:
        if self.to in ("indexed", "shards"):
            return write_shard_list(target, self.folder, finished, tars=self.to == "shards")
        lines = b"".join(self.folder.read([f"{one.shard}/{LIST}" for one in finished]))
        return write_to(target, gzip.compress(lines, mtime=0) if target.endswith(".gz") else lines)


def _samples(node: Node, count: int) -> Iterator[Sample]:
    """Yield the next ``count`` samples, or all that are left."""
    for _ in range(count):
        try:
            yield node.next()
        except StopIteration:
            return


# One utterance from one form to the other

_OF_AUDIO = frozenset(["wav", "start", "end", "duration", "sample_rate", "key", "txt"])
_IN_SHAR = "shar"
_DATA = (Recording, StoredArray)  # which no form has a place for, except as the utterance's own audio


def _decode(sample: Sample, *, needs_text: bool = True, keeps: frozenset[str] | None = None) -> Converted | DataError:
    """Decode an utterance of a pipeline that ends with ``decode_audio``; return it, or its failure.

    ``keeps``: fields that its form has a place for (None: all); no others are read.
    """
    wav = sample.fields.get("wav")
    where = wav if isinstance(wav, str) else wav.file.path if isinstance(wav, Ref) else sample.url
    try:
        if isinstance(wav, Recorded) and "supervisions" in sample.fields:
            sample.fields["supervisions"] = wav.of_first(sample.fields["supervisions"])
        compute(sample)
        sample.read([n for n, v in sample.fields.items() if not isinstance(v, _DATA) and (keeps is None or n in keeps)])
        metadata, dropped = _metadata_of(sample, where, sample["sample_rate"], needs_text)
        return Converted(metadata, to_int16(sample["wav"][0].numpy()), dropped)
    except Exception as error:
        return _failure_of(sample, error)


def _keep(sample: Sample, *, needs_text: bool, sample_rate: int | None) -> Converted | Kept | DataError:
    """Return an utterance with its audio file as it is, or decoded where it is no whole file; or its failure."""
    wav, decode = sample.fields.get("wav"), partial(_decode, needs_text=needs_text, keeps=TarPart.keeps)
    if isinstance(wav, Recording) or not isinstance(wav, (str, bytes, Ref)) or {"start", "end"} & sample.fields.keys():
        return decode(sample)
    try:
        audio = whole_file(wav.read() if isinstance(wav, Ref) else open_data(wav).read(), sample.url, sample_rate)
        if audio is None:
            return decode(sample)
        sample.read([name for name in sample.fields.keys() & TarPart.keeps if name != "wav"])
        metadata, dropped = _metadata_of(sample, sample.url, 0, needs_text)
    except Exception as error:
        return _failure_of(sample, error)
    return Kept(metadata, audio, dropped)


def _failure_of(sample: Sample, error: Exception) -> DataError:
    """Return an error of one utterance; raise any other one."""
    failure = sample.failure(error, "convert")
    if not isinstance(failure, DataError):
        raise failure from error
    return failure


def _metadata_of(sample: Sample, where: str, sample_rate: int, needs_text: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the metadata of a :class:`Converted`, and the names of the fields that have no place in it.

    Raises: DataError ``missing_text``, if a text is needed.
    """
    said, dropped = sample.fields.get("txt"), []
    if needs_text and not isinstance(said, str):
        raise DataError("missing_text", f"the utterance has no text; {TEXTLESS}")
    text_or_none = {"txt": said} if isinstance(said, str) else {}
    known: dict[str, Any] = {"key": sample.key, "wav": where, **text_or_none, "sample_rate": sample_rate}
    for name, value in sample.fields.items():
        if name not in _OF_AUDIO:
            try:
                text = value.decode() if isinstance(value, bytes) else value
                known[name] = json.loads(json.dumps(text, allow_nan=False))
            except (TypeError, ValueError):
                dropped.append(name)
    return known, dropped


def _refer(sample: Sample) -> Converted | Referred | DataError:
    """Return an utterance with a reference to its audio file, or decoded if it has none; or its failure."""
    try:
        wav, fields = sample.fields.get("wav"), sample.fields
        if isinstance(wav, Recorded):
            own = all(source["type"] != _IN_SHAR for source in wav.manifest["sources"])
            found = (dict(wav.manifest), wav.channels, wav.info) if own else None
        elif isinstance(wav, (str, Whole, Nearby)):
            found = recording_of(wav, audio_info(wav, dict(fields)))
        else:
            found = None
        if found is None:
            return _decode(sample, needs_text=False)
        recording, channels, info = found
        first = samples_in(fields.get("start") or 0.0, info.sample_rate)
        end = fields.get("end")
        last = info.samples if end is None else min(info.samples, samples_in(end, info.sample_rate))
        metadata, dropped = _metadata_of(sample, recording["id"], info.sample_rate, needs_text=False)
    except Exception as error:
        return _failure_of(sample, error)
    return Referred(metadata, dropped, recording, channels, first, last - first)
