"""Checks of a shard's bytes against its index, while it is read from beginning to end."""

from __future__ import annotations

from uio_pipes.sources.open_files import File
from uio_pipes.sources.tar_reader import Utterance

__all__ = ["Checks"]


class Checks:
    """The index of one shard, and what it says of each utterance."""

    def __init__(self, file: File) -> None:
        self.file = file

    def apply(self, utterance: Utterance) -> None:
        """placeholder"""
