"""``from_conversations``: conversations of text and audio, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uio_pipes.formats.conversations.table import TAGS, ConversationTable
from uio_pipes.sources.nemo import ListNemo


@dataclass(frozen=True)
class ListConversations(ListNemo):
    """Conversations of JSON lines. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_conversations"

    tags: tuple[str, ...] = TAGS
    root: str | None = None

    def describe(self, *, stable: bool = False) -> str:
        """As for every listing, with the names of the fields, and the tags."""
        known = super().describe(stable=stable)
        return f"{known}, tags={self.tags}" if stable else known

    def table(self) -> ConversationTable:
        """Look through the files. Raises: ListError."""
        return ConversationTable(self.manifests, self.tars, self.access, self.names, self.tags, self.root)
