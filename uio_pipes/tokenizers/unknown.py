"""The share of unknown tokens, which is watched: a dictionary that does not fit the texts spoils a model silently."""

from __future__ import annotations

from collections.abc import Sequence

ENOUGH = 1_000  # labels before a share is judged
EXAMPLES = 3


class UnknownShare:
    """Counts labels and unknown labels, and warns once when the share of the unknown is above ``bound``."""

    def __init__(self, bound: float, unk_id: int) -> None:
        self.bound, self.unk_id = bound, unk_id
        self.labels = self.unknown = 0
        self.told = False
        self.examples: list[str] = []

    def look(self, key: str, text: str, tokens: Sequence[str], labels: Sequence[int]) -> str | None:
        """Count one utterance. Return the warning if it is due."""
        if self.told:
            return None
        self.labels += len(labels)
        found = labels.count(self.unk_id)
        if found:
            self.unknown += found
            self._keep(key, text, tokens, labels)
        if self.labels < ENOUGH or self.unknown <= self.bound * self.labels:
            return None
        self.told = True
        return (
            f"{self.unknown / self.labels:.1%} of the first {self.labels} labels are unknown tokens (<unk>), above "
            f"max_unk_share={self.bound}: {'; '.join(self.examples)}. Check that the dictionary fits the texts, or "
            "normalize them with .normalize_text(…)"
        )

    def _keep(self, key: str, text: str, tokens: Sequence[str], labels: Sequence[int]) -> None:
        if len(self.examples) < EXAMPLES:
            pairs = zip(tokens, labels, strict=False)
            unknown = dict.fromkeys(token for token, label in pairs if label == self.unk_id)
            shown = f"{text[:60]}…" if len(text) > 60 else text
            self.examples.append(f"{key} {shown!r} ({' '.join(map(repr, list(unknown)[:5]))})")
