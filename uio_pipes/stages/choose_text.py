"""``choose_text``: one transcript of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import check_names, is_number, require
from uio_pipes.base.errors import DataError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import PerUtterance
from uio_pipes.core.sample import Sample
from uio_pipes.formats.naming import nested
from uio_pipes.io.local import Ref

_ONE = 1 << 32  # the greatest weight as a whole number, so that every machine draws the same


@dataclass(frozen=True)
class ChooseText(PerUtterance):
    """Choose ``txt`` among several transcripts of the utterance: the first that is there, or one drawn by weights.

    A transcript is there if it is text that is not empty; if all are empty, so is ``txt``. An utterance without any
    of them is the failure ``missing_text``. With ``segments``, name the transcripts there, too (``texts=``), so that
    they are joined, and put this stage after it.

    Args:
        names: names of the fields, such as ["txt", "whisper", "paraformer"]; dots lead into nested fields. Without
            weights, the first that is there is chosen.
        weights: for each name, how often it is drawn among those that are there, relative to the others, above 0.
            An utterance gets another draw in each epoch. Default: None, nothing is drawn.
    """

    name: ClassVar[str] = "choose_text"
    note: ClassVar[str] = "when the text is needed"
    writes: ClassVar[frozenset[str]] = frozenset(["txt"])

    names: Sequence[str]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names(self.name, "names", self.names)
        object.__setattr__(self, "names", tuple(self.names))
        given = self.weights
        ok = given is None or (isinstance(given, (list, tuple)) and len(given) == len(self.names))
        ok = ok and all(is_number(weight) and weight > 0 for weight in given or ())
        require(ok, self.name, "weights must be a number above 0 for each name", given, "as in [3, 1]")
        object.__setattr__(self, "weights", None if given is None else tuple(given))

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(name.partition(".")[0] for name in self.names)

    def apply(self, sample: Sample, draws: Draws) -> None:
        found = [(at, text) for at, name in enumerate(self.names) if (text := text_in(sample.fields, name)) is not None]
        if not found:
            raise DataError("missing_text", f"the utterance has none of {', '.join(self.names)}")
        said = [(at, text) for at, text in found if text] or found
        sample.fields["txt"] = said[self._drawn([at for at, _ in said], draws)][1]

    def _drawn(self, there: list[int], draws: Draws) -> int:
        """Return the number of the chosen one among those that are ``there``."""
        if self.weights is None:
            return 0
        scale = _ONE / max(self.weights)
        shares = [max(1, round(self.weights[at] * scale)) for at in there]
        left = draws.below(sum(shares))
        for number, share in enumerate(shares):
            left -= share
            if left < 0:
                return number
        raise AssertionError("a draw lies below the sum of the weights")


def text_in(fields: Mapping[str, Any], name: str) -> str | None:
    """Return the text ``name``, which a shard may hold as a member of its own; None if there is none.

    Raises: DataError ``bad_text``.
    """
    value = nested(fields, name)
    value = value.read() if isinstance(value, Ref) else value
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError("bad_text", f"{name} is not UTF-8 ({error.reason})") from error
    return value if isinstance(value, str) else None
