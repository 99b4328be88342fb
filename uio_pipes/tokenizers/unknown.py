"""The share of unknown tokens among labels, about which ``tokenize`` warns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

ENOUGH = 1_000  # labels before a share is judged, unless the epoch ends before
EXAMPLES = 3
BOUND = 0.01  # the share of unknown labels that is not told
_CASES: tuple[tuple[str, Callable[[str], str]], ...] = (("lower", str.lower), ("upper", str.upper))


@dataclass
class UnknownShare:
    """Labels, and unknown labels among them: those of a lane, and then of all lanes (see ``core.lane.Tally``).

    ``examples``: a few texts with unknown tokens; ``in_them``: the unknown labels in them as they are, in lower, and in
    upper case.
    """

    labels: int = 0
    unknown: int = 0
    examples: list[str] = field(default_factory=list)
    in_them: list[int] = field(default_factory=lambda: [0, 0, 0])
    reported: bool = False

    def show(
        self, key: str, text: str, tokens: Sequence[str], labels: Sequence[int], unk_id: int,
        labels_of: Callable[[str], Sequence[int]],
    ) -> None:  # fmt: skip
        """Add an example. ``labels_of``: what the tokenizer makes of a text."""
        pairs = zip(tokens, labels, strict=False)
        unknown = dict.fromkeys(token for token, label in pairs if label == unk_id)
        shown = f"{text[:60]}…" if len(text) > 60 else text
        self.examples.append(f"{key} {shown!r} ({' '.join(map(repr, list(unknown)[:5]))})")
        found = [labels, labels, labels]
        with suppress(Exception):  # of a tokenizer of the user's, which was not asked for these texts
            found[1:] = [labels_of(change(text)) for _, change in _CASES]
        self.in_them = [known + one.count(unk_id) for known, one in zip(self.in_them, found, strict=True)]

    def add(self, other: UnknownShare) -> None:
        """Add the counts of ``other``."""
        self.labels += other.labels
        self.unknown += other.unknown
        if len(self.examples) < EXAMPLES:
            self.examples += other.examples
            self.in_them = [a + b for a, b in zip(self.in_them, other.in_them, strict=True)]

    def verdict(self, last: bool) -> str | None:
        """Return the warning if it is due, once. ``last``: no more is counted in this epoch."""
        enough = last or self.labels >= ENOUGH
        if self.reported or not enough or self.unknown <= BOUND * self.labels:
            return None
        self.reported = True
        share, first = self.unknown / self.labels, "" if last else "first "
        return (
            f"{share:.1%} of the {first}{self.labels} labels are unknown tokens (<unk>), above "
            f"{BOUND:.0%}: {'; '.join(self.examples[:EXAMPLES])}. {self._cause()}"
        )

    def _cause(self) -> str:
        as_it_is, *changed = self.in_them
        least = min(changed)
        if 2 * least > as_it_is:
            return "Check that the dictionary fits the texts, or normalize them with .normalize_text(…)"
        case = _CASES[changed.index(least)][0]
        return (
            f"The cause is the case of the letters: of the {as_it_is} unknown labels in these texts, {least} are left "
            f"in {case} case. Change it with .normalize_text(str.{case}), or use a dictionary of this case"
        )
