"""All exceptions of the package. Every message says where the error happened and what to do about it.

::

    UioError
    ├── PipelineError        the description is wrong (also a ValueError): raised while the pipeline is written
    ├── ListError            a list is missing, empty or of the wrong kind
    ├── StateError           a saved state does not fit this loader
    ├── TooManyFailures      the budget of failures is used up, or all that was read failed
    └── DataError            one utterance, member or shard is bad: handled by ``failures``
"""

from __future__ import annotations

import sys
from functools import cache, partial
from pathlib import Path
from traceback import walk_tb

from uio_pipes.base.urls import redact

SCREEN = 2_000  # characters of the longest message
_DOCUMENT = 1 << 16  # characters of a text that is longer than any message
# Reasons that are not failures: nothing was lost, but something may be wrong. They are only counted and reported.
NOTES = frozenset([
    "suspect", "unclear_end", "unchecked_stream", "unlisted_member", "duplicate_member", "damaged_cache", "trimmed",
    "untimed_event", "reversed_event", "negative_event", "late_event", "absent_channel", "bad_event", "not_annotated",
    "unsorted_event", "dropped_speakers",
])  # fmt: skip
# Reasons whose cause is a setting and not damage: sound utterances are lost because of what the pipeline says.
_BY_SETTING = frozenset([
    # what is too much or too little for an argument
    "over_budget", "too_short", "too_long_to_decode", "length_mismatch", "cost_failed", "bad_length", "no_length",
    "unknown_length", "no_tokens", "mostly_unknown", "no_loss", "rewritten_turns", "bad_language", "bad_label",
    "no_such_channel", "wrong_rate", "bad_rate", "mixed_rates", "mixed_sample_rates", "mixed_channels",
    "mixed_features", "has_features", "not_encoded", "too_many_speakers",
    # fields that have another name, audio that is elsewhere, and messages of another form
    "missing_key", "missing_audio", "missing_features", "missing_text", "missing_speaker", "missing_segments",
    "missing_video", "missing_stream", "missing_messages", "missing_turns", "missing_recording", "missing_sample_rate",
    "missing_timeline", "no_frame_shift", "missing_member", "missing_field", "no_audio",
    "unmatched_archive", "bad_messages",
    # what is not installed or not allowed, or must be written otherwise
    "missing_codec", "pipe_not_allowed", "compressed_tar", "text_ark", "unsupported_cut", "unsupported_features",
    "unsupported_transform",
])  # fmt: skip


def by_setting(reason: str) -> bool:
    """Return whether utterances fail for this reason because of a setting, or of a function of the user's."""
    return reason in _BY_SETTING or (reason.endswith("_failed") and reason not in ("pipe_failed", "cache_failed"))


def _shortened(text: str) -> str:
    """Return ``text`` without credentials in URLs. Of one that fills more than a screen the middle is left out: the
    remedy is at the end."""
    text = redact(text)
    gone = len(text) - SCREEN
    return text if gone <= 0 else f"{text[: SCREEN - 500]} … ({gone:,} characters) … {text[-500:]}"


def _hide(error: BaseException | None) -> None:
    """Remove credentials from the texts of an error and of those that led to it, which a traceback shows, too."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.args = tuple(redact(arg) if isinstance(arg, str) else arg for arg in error.args)
        own = ("filename", "filename2", "strerror") if isinstance(error, OSError) else ()
        for name in (*own, *vars(error)):
            text = getattr(error, name, None)  # of megabytes, it is a document, which no traceback shows
            if isinstance(text, str) and len(text) < _DOCUMENT and (shown := redact(text)) != text:
                setattr(error, name, shown)
        error = error.__cause__ or error.__context__


class UioError(Exception):
    """Base class of everything that this package raises on purpose. Credentials in URLs are removed from its texts, and
    from those of the error that is being handled, as its traceback shows both."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(_shortened(arg) if isinstance(arg, str) else arg for arg in args))
        _hide(sys.exc_info()[1])


class PipelineError(UioError, ValueError):
    """The description of a pipeline breaks a rule; the message states the rule, the value and the remedy."""


class ListError(UioError):
    """A list cannot be used; the message names the list and the line."""


class StateError(UioError):
    """A saved state does not fit; the message names the field, the old and the new value and the remedy."""


class TooManyFailures(UioError):
    """More utterances or shards failed than the budget allows."""


class NothingRead(TooManyFailures):
    """An epoch had failures and gave no utterance."""


class DataError(UioError):
    """One utterance, member or shard is bad.

    ``reason`` is a short stable word (``bad_header``, ``truncated``, ``missing_text``, …) under which failures are
    counted. ``url``, ``member`` (tar member or utterance key) and ``offset`` (bytes, in the uncompressed stream) say
    where it happened. ``key`` and ``item`` (number in the list) are set if the utterance, or its shard, is known;
    ``stage``, if one is to blame: the one whose work it is, whichever stage asked for that.
    """

    key: str = ""
    item: int | None = None
    stage: str = ""

    def __init__(
        self, reason: str, message: str, *, url: str = "", member: str = "", offset: int | None = None
    ) -> None:
        super().__init__(reason, message, url, member, offset)
        self.reason, self.message, self.url = reason, _shortened(message), _shortened(url)
        self.member, self.offset = member, offset

    def within(self, what: str) -> DataError:
        """Return this error with a message that begins with ``what`` it is about."""
        message = f"{what}: {self.message}"
        return DataError(self.reason, message, url=self.url, member=self.member, offset=self.offset)

    def at(self, url: str, member: str = "") -> DataError:
        """Return this error with the place ``url`` where it happened, and the ``member`` there."""
        return DataError(self.reason, self.message, url=url, member=member, offset=self.offset)

    def __reduce__(self) -> tuple[object, ...]:
        own = {"key": self.key, "item": self.item, "stage": self.stage}
        made = partial(DataError, url=self.url, member=self.member, offset=self.offset)
        return made, (self.reason, self.message), own

    def __str__(self) -> str:
        where = [self.url] if self.url else []
        where += [f"{'utterance' if self.member == self.key else 'member'} {self.member!r}"] if self.member else []
        where += [f"byte {self.offset}"] if self.offset or (self.offset == 0 and not self.key) else []
        return f"{', '.join(where)}: {self.message} [{self.reason}]" if where else f"{self.message} [{self.reason}]"


class LeftOut(DataError):
    """An intact utterance that turned out to be unwanted when it was realized. It is counted, but not as a failure."""


@cache
def _library_paths() -> tuple[str, ...]:
    """Return what the files begin with that are not the user's: of this package, and of Python and its libraries."""
    import sysconfig  # finding its paths takes 1 ms, which only an error may cost

    libraries = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    return str(Path(__file__).parents[1]), *libraries, "<"


def raised_in(error: Exception) -> str:
    """Return in which function of the user's an error was raised, as `` in name @ file:line``; "" if in none."""
    for frame, line in walk_tb(error.__traceback__):
        if not (code := frame.f_code).co_filename.startswith(_library_paths()):
            return f" in {code.co_name} @ {code.co_filename}:{line}"
    return ""
