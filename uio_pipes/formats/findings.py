"""Failures of one utterance, as reading meets them and as checks find them."""

from __future__ import annotations

from uio_pipes.base.errors import DataError


def finding(reason: str, message: str, url: str, key: str = "", offset: int | None = None) -> DataError:
    """Return the error of one utterance."""
    error = DataError(reason, message, url=url, member=key, offset=offset)
    error.key = key
    return error
