"""One utterance: a mapping whose fields are computed when touched.

Stages that work on one utterance (decode, resample, tokenize, fbank, …) do nothing when an utterance passes: each one
only adds itself to the sample's chain. Touching a field runs the links that it depends on, and no others: a filter on
labels tokenizes, but does not decode. What filters, sorting and batching need to know of audio, its length, is the
*plan*: made from headers and each stage's own length rule, without decoding. The rest is run when the batch is made
(:mod:`uio_pipes.core.realize`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from uio_pipes.audio.length import Plan, measure, settled, sum_of
from uio_pipes.base import clock
from uio_pipes.base.errors import DataError, LeftOut, PipelineError, UioError
from uio_pipes.base.hashing import Draws, LateDraws
from uio_pipes.base.urls import redact
from uio_pipes.core.chain import Chain, Link, StreamNames, audio_names, recordings
from uio_pipes.core.origin import HasPlace, Origin, describe_error
from uio_pipes.core.pulse import PULSE
from uio_pipes.io.opening import is_far
from uio_pipes.io.references import Ref, TextRef

if TYPE_CHECKING:
    from typing_extensions import Self

MEASURED = frozenset(["wav", "feat", "sample_rate", "start", "end", "duration"])


class Sample(MutableMapping[str, Any]):
    """One utterance. ``sample[name]`` computes the field if a deferred stage writes it.

    Attributes:
        fields: values as they are now, nothing computed.
        origin: where it came from.
        as_stored: whether 16-bit PCM is to be decoded to the samples as they are stored.
        hashed: a link that knows it by a hash of its fields, and that hash.
    """

    __slots__ = (
        "_place", "_plan", "_planned", "_run_key", "_seed", "_streams", "as_stored", "chain", "done", "fields",
        "hashed", "origin",
    )  # fmt: skip

    def __init__(
        self, fields: dict[str, Any], origin: Origin, run_key: bytes, chain: Chain, url: str | HasPlace = ""
    ) -> None:
        self.fields = fields
        self.origin = origin
        self._place = url
        self.chain = chain
        self.done = 0
        self.as_stored = False
        self.hashed: tuple[Link, bytes] | None = None
        self._run_key = run_key
        self._seed: int | None = None
        self._plan: Plan | None = None
        self._planned = -1  # links whose length rule is in _plan; -1: to be measured
        self._streams: dict[str, tuple[int, list[Plan | None]]] | None = None  # links and plans of streams, by name

    @property
    def url(self) -> str:
        """The shard or the list's line, for messages."""
        return self._place if isinstance(self._place, str) else self._place.place

    @property
    def key(self) -> str:
        """The utterance's name."""
        return str(self.fields.get("key", ""))

    @property
    def labels(self) -> int:
        """How many labels it has now, nothing computed."""
        labels: Any = self.fields.get("label")
        try:
            return 0 if labels is None else len(labels)
        except TypeError:
            return 0

    def __getitem__(self, name: str) -> Any:
        self._run(self.chain.writers(name))
        value = self.fields[name]
        return value.read() if isinstance(value, Ref) else value

    def __setitem__(self, name: str, value: Any) -> None:
        self._run(self.chain.users(name))
        self.fields[name] = value
        self._streams = None
        if name in MEASURED:
            self._planned = -1

    def __delitem__(self, name: str) -> None:
        self._run(self.chain.users(name))
        del self.fields[name]

    def __iter__(self) -> Iterator[str]:
        to_come = [link for i, link in enumerate(self.chain.links) if not self.done >> i & 1]
        written = {n: None for link in to_come for n in link.writes if n != "*"}
        return iter({**self.fields, **written})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"Sample(key={self.key!r}, fields={sorted(self)}, {self.origin})"

    def _run(self, bits: int) -> None:
        bits &= ~self.done
        if not bits:
            return
        timer, began = clock.detailed, clock.now() if clock.detailed is not None else 0
        for i, link in enumerate(self.chain.links):
            if bits >> i & 1:
                later, self.done = self.done & -1 << i, self.done | -1 << i  # it sees the fields as they are here
                try:
                    PULSE.at(link.name, self)
                    link.apply(self)
                except Exception as error:
                    raise self._caused(error, link.name)  # noqa: B904
                finally:
                    self.done = self.done & ~(-1 << i) | later
                self.done |= 1 << i
                if timer is not None:
                    began = timer.applied(link, began)

    def compute(self, link: Link) -> None:
        """Run ``link`` of the chain, and the links that it needs."""
        self._run(self.chain.needs[self.chain.links.index(link)])

    def compute_now(self, name: str, of: str) -> None:
        """Run the first stage ``name`` of the stream ``of``, because only that reveals its length."""
        self.compute(next(link for link in self.chain.links if (link.name, link.of) == (name, of)))

    def compute_all(self) -> None:
        """Run everything still deferred."""
        self._run((1 << len(self.chain.links)) - 1)

    def finish(self) -> None:
        """Run everything still deferred, and read texts that are in members of their own."""
        self.compute_all()
        self.read(kind=TextRef)

    def read(self, names: Collection[str] | None = None, kind: type[Ref] = Ref) -> None:
        """Read the payloads of all references of a ``kind``, or those in the fields ``names``. Raises: DataError."""
        for name, value in self.fields.items():
            if isinstance(value, kind) and (names is None or name in names):
                try:
                    PULSE.at("read", self)
                    self.fields[name] = value.read()
                except DataError as error:
                    raise self.failure(error.within(f"the field {name}"), "read") from error

    @property
    def plan(self) -> Plan:
        """The planned length at this point of the graph, an upper bound of the real one.

        Raises: DataError if a header is bad, PipelineError if nothing gives a length.
        """
        plan = self.planned()
        if plan is None:
            streams = self.chain.streams
            why = (
                f'its audio is in a stream: give length="{streams[0]}.frames" or another length'
                if self.text_only and streams
                else "it has no audio; batch it by number with .batch(…), and leave out what goes by length"
                if self.text_only
                else "it has neither features nor audio whose header gives it; put .decode_audio() before the stage "
                "that filters, sorts or batches"
            )
            raise PipelineError(f"utterance {self.key!r} has no length here: {why}")
        return plan

    @property
    def text_only(self) -> bool:
        """True if it has neither audio nor features, and no stage has made any."""
        return "wav" not in self.fields and "feat" not in self.fields

    def planned(self) -> Plan | None:
        """Return :attr:`plan`, or None if nothing gives a length (text only)."""
        chain = self.chain
        if self._planned != len(chain.links):
            try:
                PULSE.at("plan", self)
                plan, first, done = self._plan, self._planned, 0
                measured = chain.measured
                if first < 0 and measured is not None and not self.done & 1:
                    plan, first, done = measured(self), 1, self.done
                elif first < 0:  # measured anew; fields show the effect of links that have run
                    plan, first, done = measure(self.fields), 0, self.done
                for i, link in chain.rules:
                    if i >= first and not done >> i & 1:
                        plan = link.plan(plan, self)
                if self.done < 0:  # within a stage, for which those after it are not there
                    return plan
                self._plan, self._planned = plan, len(chain.links)
            except Exception as error:
                raise self._caused(error, "plan")  # noqa: B904
        return self._plan

    def stream(self, of: str) -> Plan | None:
        """Return the planned length of all recordings of the stream ``of``, None if unknown. Raises: DataError."""
        plans = self.recordings(of)
        return plans[0] if len(plans) == 1 else sum_of(plans)

    def recordings(self, of: str) -> list[Plan | None]:
        """Return the planned length of each recording of the audio stream ``of``. Raises: DataError."""
        links, known = self.chain.links, (self._streams or {}).get(of)
        if known is not None and known[0] == len(links):
            return known[1]
        stage, names = "plan", audio_names(of)
        try:
            PULSE.at("plan", self, of)
            if self.fields.keys().isdisjoint(names.values()):  # perhaps another stage makes it
                for link in links:
                    if link.of != of and not link.writes.isdisjoint(["*", *names.values()]):
                        self.compute(link)
            plans: list[Plan | None] = []
            for view in self.views(of, names):
                try:
                    plan = view.measured()
                    for i, link in enumerate(links):
                        if link.of == of and not self.done >> i & 1:
                            stage = link.name
                            plan = link.plan(plan, view)
                except DataError as error:
                    raise view.named(error)  # noqa: B904
                plans.append(plan)
        except Exception as error:
            raise self._caused(error, stage)  # noqa: B904
        if self.done >= 0:
            self._streams = (self._streams or {}) | {of: (len(links), plans)}
        return plans

    def finished(self) -> Sample:
        """Return a sample of the computed fields and their lengths; what fields do not tell is as planned."""
        bare = self.bare()
        bare._plan, bare._planned = settled(self.planned(), measure(self.fields)), 0
        bare._streams = {}
        for of in self.chain.streams:
            made = zip(self.recordings(of), self.views(of, audio_names(of)), strict=True)
            bare._streams[of] = 0, [settled(plan, measure(view.fields)) for plan, view in made]
        return bare

    def views(self, of: str, names: StreamNames) -> list[View]:
        """Return each recording of the stream ``of``, mostly one, as an utterance; ``names``: its fields."""
        count = recordings(self.fields, names)
        if count is None:
            return [View(self, of, names)]
        return [View(self, of, names, (at, count)) for at in range(count)]

    def draws(self, salt: int) -> Draws:
        """Return this sample's generator for the stage with ``salt``."""
        return LateDraws(self, salt)

    @property
    def seed(self) -> int:
        """A 64-bit hash of seed, epoch and origin."""
        if self._seed is None:
            digest = blake2b(repr(tuple(self.origin)).encode(), digest_size=8, key=self._run_key).digest()
            self._seed = int.from_bytes(digest, "little")
        return self._seed

    @property
    def has_drawn(self) -> bool:
        """Whether a stage has drawn random numbers for it."""
        return self._seed is not None

    def note_draws(self) -> None:
        """Note that a stage has drawn for a copy whose results this sample uses."""
        self._seed = self.seed

    def _caused(self, error: Exception, stage: str) -> UioError:
        """Return :meth:`failure` with ``error`` as its cause, unless they are the same: that would be a cycle."""
        failure = self.failure(error, stage)
        if failure is not error:
            failure.__cause__ = error
        return failure

    def failure(self, error: Exception, stage: str) -> UioError:
        """Return ``error`` of the stage ``stage`` as a ``DataError`` that says where; errors of the run unchanged."""
        return describe_error(error, stage, self.key, self.url, self.origin, self.fields.get("wav"))

    def bare(self) -> Sample:
        """Return a sample of the same fields with nothing deferred, for a deferred function of the user's."""
        return Sample(self.fields, self.origin, self._run_key, NOTHING, self._place)

    @property
    def is_found(self) -> bool:
        """Whether something of it is in a remote file, but what the first link makes of it is known without that."""
        found = self.chain.found if not self.done & 1 else None
        return found is not None and any(map(is_far, self.fields.values())) and found(self)

    def settle(self, plan: Plan | None) -> None:
        """Take the length that the first link makes as ``plan``, unless a length is known."""
        if self._planned < 0:
            self._plan, self._planned = plan, 1

    def restart(self, chain: Chain) -> Self:
        """Replace its chain by ``chain``, of which nothing has run."""
        self.chain, self.done, self._planned, self._streams = chain, 0, -1, None
        return self

    def replaced(self, fields: Mapping[str, Any]) -> Sample:
        """Return a sample of ``fields`` with the same origin and nothing deferred."""
        return Sample(dict(fields), self.origin, self._run_key, Chain(), self._place)

    def copy(self) -> Sample:
        """Return a copy: fields computed in one of them are not in the other."""
        copy = self._like(self.origin)
        copy._seed, copy._plan, copy._planned, copy._streams = self._seed, self._plan, self._planned, self._streams
        copy.hashed = self.hashed
        return copy

    def child(self, sub: int) -> Sample:
        """Return a copy as number ``sub`` of the results of a ``flat_map``."""
        return self._like(self.origin._replace(sub=(*self.origin.sub, sub)))

    def _like(self, origin: Origin) -> Sample:
        like = Sample(dict(self.fields), origin, self._run_key, self.chain, self._place)
        like.done = self.done
        return like


class View(Sample):
    """A stream of an utterance, whose fields have their usual names here. ``at``: one of several recordings, by its
    number and how many there are.

    An array without a sample rate, such as the codes of a codec, is no audio: it is ``feat`` here.

    Raises: DataError ``missing_stream`` if the utterance has none of its fields.
    """

    __slots__ = ("_at", "_names", "_of", "_whole")

    def __init__(self, whole: Sample, of: str, names: StreamNames, at: tuple[int, int] | None = None) -> None:
        self._whole, self._of, self._names, self._at = whole, of, names, at
        origin = whole.origin if at is None else whole.origin._replace(sub=(*whole.origin.sub, at[0]))
        super().__init__(self._fields(), origin, whole._run_key, NOTHING, whole._place)

    def _fields(self) -> dict[str, Any]:
        fields, names = self._whole.fields, self._names
        own = {usual: fields[name] for usual, name in names.items() if name in fields}
        if not own:
            there = ", ".join(map(str, fields))
            raise DataError("missing_stream", f"the utterance has no {self._of!r} (its fields: {there})")
        if self._at is not None:
            each = {usual: value[self._at[0]] if isinstance(value, list) else value for usual, value in own.items()}
            own = {usual: value for usual, value in each.items() if value is not None}
        value = own.get("wav")
        if own.keys().isdisjoint(["sample_rate", "feat"]) and isinstance(value, (torch.Tensor, np.ndarray, list)):
            self._names = {"feat": self._of}
            own = {"feat": torch.as_tensor(value) if isinstance(value, list) else value}
        return {name: value for name, value in fields.items() if name not in MEASURED and name not in names} | own

    def put_back(self) -> None:
        """Write what has been made of the stream back to the utterance."""
        whole = self._whole.fields
        for usual, name in self._names.items():
            value = self.fields.get(usual)
            if self._at is not None:
                at, count = self._at
                others = whole.get(name)
                several = list(others) if isinstance(others, list) else [others] * count
                several[at] = value
                value = several if any(one is not None for one in several) else None
            if value is not None:
                whole[name] = value
            else:
                whole.pop(name, None)

    def measured(self) -> Plan | None:
        """Return the length that the fields give. What had to be fetched for it is kept."""
        audio = self.fields.get("wav")
        plan = measure(self.fields)
        if self.fields.get("wav") is not audio:
            self.put_back()
        return plan

    def named(self, error: DataError) -> DataError:
        """Return the error, with the number and the file of the recording if there are several."""
        if self._at is None or error.key or isinstance(error, LeftOut):  # with a key, it has been named already
            return error
        audio = self._whole.fields.get(self._of) or [None] * self._at[1]
        one = audio[self._at[0]]
        path = one if isinstance(one, str) else one.file.path if isinstance(one, Ref) else ""
        named = not path or path in (error.url or "")
        return error.within(f"recording {self._at[0] + 1} of {self._of!r}" + ("" if named else f" ({redact(path)})"))

    def compute_now(self, name: str, of: str) -> None:
        self._whole.compute_now(name, of)
        self.fields.update(self._fields())


NOTHING = Chain()
