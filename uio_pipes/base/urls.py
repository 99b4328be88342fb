"""Paths, URLs and texts from data, made safe to print: without credentials, and with control characters escaped.

Of the query of a URL only values under a few names that tell nothing are shown, and of its fragment nothing. What may
change when a URL is signed anew becomes ``***``; any other value ``***`` and 8 digits of a hash, so that states, lists
of failures and people still know two files apart.
"""

from __future__ import annotations

import logging
import os
import re
from hashlib import blake2b

AnyPath = str | os.PathLike[str]  # what a user gives as the place of a file or folder

# What follows a ? or # up to the end. The rest of a file's name is none: part-?.tar, take#2.wav.
_AFTER_PATH = re.compile(r"[?#](?!(?:[^=&/]*/.*|[^=&]*)\.\w{1,5}$).*", re.DOTALL)


def path_of(url: str) -> str:
    """Return a URL without its query and fragment; a path is unchanged."""
    return _AFTER_PATH.sub("", url) if "://" in url else url


def is_named(url: str, suffixes: str | tuple[str, ...]) -> bool:
    """Return whether the file's name ends in one of the ``suffixes``."""
    return path_of(url).endswith(suffixes)


def name_of(url: str) -> str:
    """Return the file's name, without folders: ``a.tar``."""
    return path_of(url).rpartition("/")[2]


def stem_of(url: str) -> str:
    """Return the file's name without its last suffix: ``a``."""
    name = name_of(url)
    return name.rpartition(".")[0] or name


def suffix_of(url: str) -> str:
    """Return the suffix of the file's name in lower case, without the dot; "" if it has none."""
    return name_of(url).rpartition(".")[2].lower() if "." in name_of(url).lstrip(".") else ""


def beside(url: str, suffix: str) -> str:
    """Return the path or URL of the file that has ``suffix`` appended to its name."""
    path = path_of(url)
    return path + suffix + url[len(path) :]


def inside(folder: str, name: str) -> str:
    """Return the path or URL of a file in a folder."""
    path = path_of(folder)
    return f"{path.rstrip('/')}/{name}{folder[len(path) :]}" if folder else name


def folder_of(url: str) -> str:
    """Return the path or URL of the folder that a file is in; "" for the working directory."""
    path = path_of(url)
    folder = path.rpartition("/")[0]
    return folder + url[len(path) :] if folder else ""


HIDDEN = "***"
# pathlib makes one slash of two
_USER = re.compile(r"""(?:(?<=://)|(?<=\w\w:/)(?!/))(?:[^/\s?#]+|[^/\s?#:@\[]+:(?!\d*(?:[/?#]|$))[^\s'"<>]*)@""")
_USER_OF_BUCKET = re.compile(r"""((?:bucket|host)(?:\ ?name)?\ ["'])[^\s'"/:@]+:[^\s'"]*@""", re.IGNORECASE)  # botocore
_USER_OF_STATES = re.compile(r"(?<=://)[^/\s?#]+@")  # the fingerprints of lists in states are made with it
_SIGNING = r"""(?: x-(?:amz|goog|oss)-[\w-]+  # S3, Google, Alibaba: the signature, and what changes with it
      | [\w.-]* (?:signature|token|secret|passw|credential|accesskeyid|accessid|api[_-]?key) [\w.-]*
      | sig | sign | auth | delegation | user\.name | doas | key | expires | policy | key-pair-id )"""
_ALSO = r"(?: [\w.-]* (?:jwt|pwd|access[_-]?key|session) [\w.-]* | pass | pw | hmac | code )"
_SIGNED = re.compile(rf"""(?ix) (?<=[?&;]) ( {_SIGNING} = ) [^&\#\s'"<>]+""")
_SECRET = re.compile(rf"""(?ix) (?<=[?&;\#]) ( (?:{_SIGNING}|{_ALSO}) = ) [^&\#\s'"<>]*[^&\#\s'"<>.,:;)\]}}]""")
_OF_COMMANDS = re.compile(  # headers, options and variables of a Kaldi pipe, and what it says
    r"""(?ix) ( (?:authorization|(?<=["'])(?:[\w-]*(?:key|token|secret|auth)[\w-]*|cookie)):\s*(?:\w+\s+|(?!\w+\s))
      | (?<!\S)(?:-u|--user)[ =]?['"]?[^\s:'"]+: | sshpass\s+-p\s*
      | (?<!\S)--[\w-]*(?:passw(?:or)?d|passphrase|bearer|secret|token)\s+
      | (?<![\w.-])[\w.-]*(?:secret|passwo?r?d|passphrase|(?:secret|access|api)[._-]?key|(?-i:TOKEN)
          |(?:hf|auth|access|session|api)[_-]token)= )
      (?!\*\*\*) ['"]?[^\s'"&;|,]+"""
)
_QUERY = re.compile(r"""[?#][^\s'"<>]*[^\s'"<>.,:;)\]}]""")
_PIECE = re.compile(r"([?&;#])([^?&;#=]*)(=?)([^&;#]*)")
_SHOWN = frozenset(
    ["page", "part", "op", "offset", "length", "version", "versionid", "generation", "alt", "format", "raw"]
)
_MARK = re.compile(r"\*\*\*(?:[0-9a-f]{8})?")


def redact(text: str) -> str:
    """Replace ``user:password@``, the values of queries, fragments, and what else is named as secret by ``***``.

    Doing it twice changes nothing.
    """
    if "=" in text:
        text = _SECRET.sub(rf"\1{HIDDEN}", text)
    if " " in text or "=" in text:
        text = _OF_COMMANDS.sub(rf"\1{HIDDEN}", text)
    if "@" in text:
        text = _USER_OF_BUCKET.sub(rf"\1{HIDDEN}@", text)
    if ":/" not in text:
        return text
    if "@" in text:
        text = _USER.sub(f"{HIDDEN}@", text)
    before, sign, rest = text.partition(":/")
    return before + sign + _QUERY.sub(_hidden, rest)


def unsigned(text: str) -> str:
    """Return ``text`` without what changes when a URL is signed anew: for hashes, never to be shown."""
    if "://" in text and "@" in text:
        text = _USER_OF_STATES.sub(f"{HIDDEN}@", text)
    return _SIGNED.sub(rf"\1{HIDDEN}", text) if "=" in text else text


def _hidden(query: re.Match[str]) -> str:
    is_name = path_of(f"://{query[0]}") != "://"  # part-?.tar
    return query[0] if is_name else _PIECE.sub(_shown, query[0])


def _shown(piece: re.Match[str]) -> str:
    mark, name, sign, value = piece.groups()
    if name.lower() in _SHOWN:
        return piece[0]
    name, value = (f"{name}=", value) if sign else ("", name)
    if value and not _MARK.fullmatch(value):
        value = HIDDEN + blake2b(value.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"{mark}{name}{value}"


class _Redacted(logging.Filter):
    """Credentials are removed from all that the package logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if (
            shown := redact(message)
        ) != message:  # else other handlers find the parts of the message as they were given
            record.msg, record.args = shown, ()
        return True


logging.getLogger("uio_pipes").addFilter(_Redacted("redact"))


# Control characters, line ends, marks that change the writing direction, and lone surrogates.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return ``text`` without credentials, its control characters escaped as in Python: ``\\x1b``."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), redact(text))


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 shard``, ``2 shards``, ``1,500 batches``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith(('s', 'sh', 'ch', 'x')) else 's'}"
