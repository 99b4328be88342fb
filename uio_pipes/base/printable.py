"""Text from data made safe to print: its control characters are shown, not obeyed, and credentials are not shown."""

from __future__ import annotations

import re

from uio_pipes.base.redact import redact

# Control characters, line ends, marks that change the writing direction, and lone surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return ``text`` without credentials, its control characters escaped as in Python: ``\\x1b``."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), redact(text))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 shard``, ``2 shards``, ``1,500 batches``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith(('s', 'sh', 'ch', 'x')) else 's'}"
