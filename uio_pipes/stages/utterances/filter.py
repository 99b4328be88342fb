"""``filter``, ``keep``, ``exclude``: keep utterances by bounds, by chance, or unless a quarantine file names them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Protocol, cast

from uio_pipes.base.checks import in_words, is_number, refuse, require, require_range
from uio_pipes.base.errors import NOTES, DataError, ListError, UioError
from uio_pipes.base.hashing import stable_hash
from uio_pipes.core.capabilities import Connects, FollowsSteps, Upstream
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import Ledger
from uio_pipes.core.pulse import PULSE
from uio_pipes.core.realize import Length, check_measure, exactly
from uio_pipes.core.roles import Flow, check_labels
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import NO_IDENTITY, Node, Stage, must_be, printed
from uio_pipes.formats.lists.quarantine import Known, read_quarantine
from uio_pipes.io.local import open_regular

_BOUNDS = [
    ("min_frames", "max_frames"),
    ("token_min_length", "token_max_length"),
    ("min_output_input_ratio", "max_output_input_ratio"),
    ("min_length", "max_length"),
]


@dataclass(frozen=True)
class Filter(FollowsSteps, Flow):
    """Keep the utterances within bounds, or those for which your function returns true.

    Bounds are inclusive, and their defaults are WeNet's. Of text without audio, the number of labels counts.

    Args:
        function: gets the sample and returns whether to keep it; the bounds are then ignored. Default: None.
        min_frames: fewest planned feature frames, or hundredths of a second of audio if there is no feature stage
            before. Default: 10.
        max_frames: most frames, counted the same way. Default: 10,240.
        token_min_length: fewest labels; checked only after ``tokenize``. Default: 1.
        token_max_length: most labels; checked only after ``tokenize``. Default: 200.
        min_output_input_ratio: smallest number of labels per frame; checked only after ``tokenize``. Default:
            0.0005.
        max_output_input_ratio: largest number of labels per frame; checked only after ``tokenize``. Default: 1.
        length: another length to go by instead of all these, such as "tokens", "prompt.frames", or a function of all
            planned lengths, as in ``lambda n: n.frames // 4 + n.tokens``. Default: None.
        min_length: fewest of ``length``. Default: None, no bound.
        max_length: most of ``length``. Default: None, no bound.
        share: keep this share of all utterances instead, chosen by a hash of their keys: the same ones in every run
            and epoch, on any machine, and a smaller share is part of a larger one. Two numbers are a range: (0, 0.1) is
            0.1, and (0.1, 1) the others. Default: None.
        salt: any text; each gives another choice. Default: "".
    """

    name: ClassVar[str] = "filter"
    note: ClassVar[str] = "by the plan: nothing is decoded"
    follows_steps: ClassVar[frozenset[str]] = frozenset(["function", *chain(*_BOUNDS)])
    reasons = (
        "filter",
        "other_share",
        "too_short",
        "too_long",
        "too_few_tokens",
        "too_many_tokens",
        "bad_output_input_ratio",
    )

    function: Callable[[Sample], bool] | None = None
    min_frames: float = 10
    max_frames: float = 10_240
    token_min_length: int = 1
    token_max_length: int = 200
    min_output_input_ratio: float = 0.0005
    max_output_input_ratio: float = 1
    length: Length | None = None
    min_length: float | None = None
    max_length: float | None = None
    share: float | tuple[float, float] | None = None
    salt: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.function is None or callable(self.function)
        require(ok, self.name, "the first argument must be a function of the sample", self.function, "name the bounds")
        for low, high in _BOUNDS:
            a, b = getattr(self, low), getattr(self, high)
            ok = a is None or b is None or a <= b
            require(ok, self.name, f"{low} must not be above {high}", (a, b), "nothing would be left")
        check_measure(self.name, self.length)
        bounded, remedy = (self.min_length, self.max_length) != (None, None), 'as in length="tokens", max_length=200'
        refuse(self.length is not None and not bounded, self.name, "length needs min_length or max_length", remedy)
        refuse(self.length is None and bounded, self.name, "min_length and max_length need length", remedy)
        if self.share is None:
            refuse(self.salt, self.name, "salt needs share", "as in share=0.1")
            return
        _ = self._hashes  # checks it
        given = [f.name for f in fields(self) if f.name not in ("share", "salt") and getattr(self, f.name) != f.default]
        remedy = "put another .filter(…) beside it"
        refuse(given, self.name, f"share cannot be combined with {in_words(given)}", remedy)

    @cached_property
    def _hashes(self) -> tuple[int, int]:
        """The hashes that the share begins and ends with."""
        if is_number(self.share):
            require(0 <= self.share <= 1, self.name, "share must be from 0 to 1", self.share, "as in share=0.1")  # type: ignore[operator]
        share = (0, self.share) if is_number(self.share) else self.share
        low, high = require_range(self.name, "share", share, 0, 1)
        return round(low * 2**64), round(high * 2**64)

    def check(self, before: Sequence[Stage]) -> None:
        check_labels(self.name, self.length, before)

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _FollowingFilter(source, lane, self, site) if self.versions else FilterNode(source, lane, self)

    def reason(self, sample: Sample) -> str | None:
        """Return the reason to leave the sample out; None if it stays."""
        if self.function is not None:
            return None if self.function(sample) else "filter"
        if self.share is not None:
            low, high = self._hashes
            return None if low <= stable_hash(self.salt, sample.key) < high else "other_share"
        if self.length is not None:
            length = exactly(self.length)(sample)
            if self.min_length is not None and length < self.min_length:
                return "too_short"
            return "too_long" if self.max_length is not None and length > self.max_length else None
        labelled = "label" in sample.fields or sample.chain.names("label")
        plan = sample.planned() if labelled and sample.text_only else sample.plan
        frames = None if plan is None else plan.duration_frames
        if frames is not None and not self.min_frames <= frames <= self.max_frames:
            return "too_short" if frames < self.min_frames else "too_long"
        if not labelled:
            return None
        labels = len(sample["label"])
        if not self.token_min_length <= labels <= self.token_max_length:
            return "too_few_tokens" if labels < self.token_min_length else "too_many_tokens"
        if frames is None:
            return None
        ratio = labels / frames if frames else float("inf")
        if not self.min_output_input_ratio <= ratio <= self.max_output_input_ratio:
            return "bad_output_input_ratio"
        return None


class Reasons(Protocol):
    """A stage that leaves utterances out."""

    @property
    def name(self) -> str: ...
    def reason(self, sample: Sample) -> str | None: ...


class FilterNode(Node):
    """Passes on the utterances that ``stage`` has no reason to leave out, and counts the others under its reasons."""

    def __init__(self, source: Node, lane: Lane, stage: Reasons) -> None:
        super().__init__(source)
        self.lane, self.stage = lane, stage

    def next(self) -> Sample:
        while True:
            sample: Sample = self.source.next()
            try:
                PULSE.at(self.stage.name, sample)
                reason = self.reason(sample)
            except Exception as error:
                self.lane.ledger.handle(sample.failure(error, self.stage.name), self.stage.name)
                continue
            self.lane.ledger.succeeded(self.stage.name)
            if reason is None:
                return sample
            self.lane.ledger.count(reason)

    def reason(self, sample: Sample) -> str | None:
        """Return the reason to leave the sample out; None if it stays."""
        return self.stage.reason(sample)


class _FollowingFilter(FilterNode):
    """A filter whose bounds follow the step."""

    state_fields: ClassVar[tuple[str, ...]] = ("position",)

    def __init__(self, source: Node, lane: Lane, stage: Filter, site: Site) -> None:
        super().__init__(source, lane, stage)
        self.setting = stage.setting(lane, site)
        self.setting.node = self

    def start(self) -> None:
        self.position = 0  # utterances taken in

    def reason(self, sample: Sample) -> str | None:
        self.position += 1
        return self.setting.at(self.position - 1).reason(sample)  # type: ignore[no-any-return]


def _probabilities(stage: Keep, stable: bool) -> str | None:
    """Fingerprints have a hash of the table instead of its path."""
    if not stable and not isinstance(stage.probabilities, Mapping):
        return None
    return f"{len(stage.table)} utterances {stable_hash(*sorted(stage.table.items())):016x}"


@dataclass(frozen=True)
class Keep(Flow):
    """Keep each utterance with a probability of its own, such as one that follows from its loss in an earlier run.

    A draw for each utterance decides, in each epoch anew. Those left out are counted as ``keep``; nothing of them is
    decoded.

    Args:
        probabilities: a dict of probabilities, from 0 to 1, by key; or the path of a file with a line ``KEY
            PROBABILITY`` for each utterance, which is read when a loader starts.
        otherwise: the probability of utterances that are not in the table. Default: 1.0.

    Raises:
        ListError: when the loader starts, if the file cannot be read.
    """

    name: ClassVar[str] = "keep"
    note: ClassVar[str] = "by a draw: nothing is decoded"
    reasons = ("keep",)

    probabilities: str | os.PathLike[str] | Mapping[str, float] = field(metadata=printed(_probabilities))
    otherwise: float = must_be(1.0, "from 0 to 1", lambda p: 0 <= p <= 1, "1 keeps those that the table lacks")

    def __post_init__(self) -> None:
        super().__post_init__()
        given, rule = self.probabilities, "probabilities must be a dict of numbers from 0 to 1 by key, or a path"
        wrong = {key: p for key, p in given.items() if not _is_share(p)} if isinstance(given, Mapping) else {}
        ok = isinstance(given, (str, os.PathLike, Mapping)) and not wrong
        require(ok, self.name, rule, dict(list(wrong.items())[:1]) or given, 'as in {"U001": 0.5}')

    @cached_property
    def table(self) -> Mapping[str, float]:
        """Probabilities by key. Reads the file. Raises: ListError naming the line."""
        if isinstance(self.probabilities, Mapping):
            return self.probabilities
        found = dict[str, float]()
        try:
            with open(self.probabilities, encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, 1):
                    key, text = [*line.rsplit(None, 1), "", ""][:2]
                    with suppress(ValueError):
                        found[key] = float(text)
                    if not _is_share(found.get(key)):
                        raise ListError(f"{self.probabilities}, line {number}: {line!r:.80} is not KEY PROBABILITY")
        except (OSError, UnicodeDecodeError) as error:
            raise ListError(f"keep: cannot read {self.probabilities}: {getattr(error, 'strerror', error)}") from error
        return found

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return FilterNode(source, lane, _Drawn(self.table, self.otherwise, site.salt))


def _is_share(value: object) -> bool:
    return is_number(value) and 0 <= value <= 1  # type: ignore[operator]


class _Drawn(NamedTuple):
    table: Mapping[str, float]
    otherwise: float
    salt: int
    name: str = Keep.name

    def reason(self, sample: Sample) -> str | None:
        kept = sample.draws(self.salt).uniform() < self.table.get(sample.key, self.otherwise)
        return None if kept else "keep"


@dataclass(frozen=True)
class Exclude(Connects, Flow):
    """Leave out the utterances named in a quarantine file, and count them as ``excluded``.

    ``uio.Failures(quarantine=…)`` and ``uio verify --quarantine`` write such a file. Utterances are recognized by their
    shard (or list) and key, and are left out before anything of them is decoded. One that the file names and that
    fails while it is loaded is counted as ``excluded`` too, not as a failure. Put this stage directly after the one
    that loads utterances.

    Args:
        path: the quarantine file. It must be unchanged when a state is loaded.
    """

    name: ClassVar[str] = "exclude"
    reasons = ("excluded",)

    path: str | os.PathLike[str] = field(metadata=NO_IDENTITY)  # the file has a fingerprint of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.path, (str, os.PathLike)) and bool(os.fspath(self.path))
        require(ok, self.name, "path must be that of a quarantine file", self.path, "write one with uio verify")

    def content(self) -> list[tuple[int, str]]:
        try:
            with open_regular(self.path) as file:
                return [(0, blake2b(file.read(), digest_size=16).hexdigest())]
        except (DataError, OSError) as error:
            why = error.message if isinstance(error, DataError) else error.strerror
            raise ListError(f"cannot read the quarantine file {os.fspath(self.path)}: {why}") from error

    def known(self) -> Known:
        """Read the file. Raises: ListError."""
        return Known(read_quarantine(self.path))

    def connect(self, upstream: Upstream, lane: Lane, site: Site) -> Node:
        known = lane.shared(("quarantine", os.fspath(self.path)), self.known)
        ledger = cast(Ledger, _Forgiving(lane.ledger, known))
        return FilterNode(upstream(replace(lane, ledger=ledger)), lane, _Excluded(known))

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None


class _Forgiving:
    """The ledger of a lane for the stages before: utterances known to fail do not count as failures."""

    def __init__(self, ledger: Ledger, known: Known) -> None:
        self._ledger, self._known = ledger, known

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def silent(self) -> Ledger:
        return cast(Ledger, _Forgiving(self._ledger.silent(), self._known))

    def fail(self, error: DataError, stage: str) -> None:
        if self._known.failure(error):
            if error.reason not in NOTES:  # an utterance with a mere note is counted when it is left out
                self._ledger.count("excluded")
        else:
            self._ledger.fail(error, stage)

    def handle(self, error: UioError, stage: str) -> None:
        if isinstance(error, DataError):
            self.fail(error, stage)
        else:
            self._ledger.handle(error, stage)


class _Excluded(NamedTuple):
    known: Known
    name: str = Exclude.name

    def reason(self, sample: Sample) -> str | None:
        return "excluded" if self.known.utterance(sample.url, sample.key) else None
