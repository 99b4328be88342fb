"""Removal of credentials from URLs and messages, so that they never leave the process."""

from __future__ import annotations

import re

HIDDEN = "***"
_USER = re.compile(r"(?<=://)[^/\s?#]+@")
_QUERY = re.compile(
    r"""(?ix) (?<=[?&;])
    ( (?: x-(?:amz|goog|oss)-[\w-]+  # S3, Google, Alibaba: the signature, and what changes with it
      | [\w.-]* (?:signature|token|secret|passw|credential|accesskeyid|accessid|api[_-]?key) [\w.-]*
      | sig | sign | auth | delegation | user\.name | doas | key | expires | policy | key-pair-id ) = )
    [^&\#\s'"<>]+"""
)


def redact(text: str) -> str:
    """Replace ``user:password@``, and signatures, tokens and keys in query strings, by ``***``."""
    if "://" in text and "@" in text:
        text = _USER.sub(f"{HIDDEN}@", text)
    return _QUERY.sub(rf"\1{HIDDEN}", text) if "=" in text else text
