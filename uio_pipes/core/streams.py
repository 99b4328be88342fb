"""Streams: what an utterance carries beside its usual audio and text (a prompt, an answer, a translation).

A stream is a field with a name of its own. A stage that is given ``of="prompt"`` works on a view of the utterance in
which that field is ``wav`` or ``txt``, so that no stage knows of streams. What it makes is named after the stream:
``prompt_sample_rate``, ``prompt_feat``, ``prompt_label``. An audio stream may have several recordings, as a
conversation has: the field is a list then, the stage works on one after the other, and what it makes are lists, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from uio_pipes.base.checks import require

StreamNames = Mapping[str, str]  # by usual names, those of a stream
_MADE = ("sample_rate", "feat", "start", "end", "duration", "tokens", "label")
_TAKEN = frozenset(["key", "wav", "txt", *_MADE])


@cache
def audio_names(of: str) -> StreamNames:
    """Return the fields of the audio stream ``of`` by their usual names."""
    return {"wav": of, **{name: f"{of}_{name}" for name in _MADE[:5]}}


@cache
def token_names(of: str) -> StreamNames:
    """Return the fields of the token stream ``of`` by their usual names."""
    return {"txt": of, **{name: f"{of}_{name}" for name in _MADE[5:]}}


def recordings(fields: Mapping[str, Any], names: StreamNames) -> int | None:
    """Return how many recordings the stream has whose fields are ``names``; None if it is no list of them."""
    for name in ("wav", "feat"):
        value = fields.get(names.get(name, ""))
        if isinstance(value, list):
            return None if value and isinstance(value[0], (int, float, list)) else len(value)
    return None


def check_stream(stage: str, of: object) -> None:
    """Raises: PipelineError unless ``of`` can be the name of a stream, or is "" for the usual one."""
    ok = isinstance(of, str) and (not of or (of.isidentifier() and of not in _TAKEN))
    require(ok, stage, "of must be the name of a field other than the usual ones", of, 'as in of="prompt"')
