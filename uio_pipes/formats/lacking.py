"""What to say when utterances lack a field that has another name in the data: what is there, and the line to write."""

from __future__ import annotations

from collections.abc import Collection

from uio_pipes.base.checks import nearest

USUAL = {  # what fields are called elsewhere, by ours
    "key": ("id", "utt", "utt_id", "utterance_id", "uttid", "utterance", "name", "__key__"),
    "wav": (
        "audio", "audio_filepath", "audio_path", "path", "file", "filename", "file_path", "speech", "recording", "flac",
        "mp3", "source",
    ),
    "txt": (
        "text", "sentence", "transcript", "transcription", "normalized_text", "raw_text", "label", "target", "trans",
        "words", "ref",
    ),
}  # fmt: skip
OURS = frozenset(["key", "wav", "feat", "txt", "duration", "start", "end", "speaker", "sample_rate", "label"])
SHOWN = 12  # names of fields


def named_otherwise(ours: str, there: Collection[str], also: str | None = None) -> str:
    """Return the end of a message about a lacking field: what fields are there, and how to name the one that is meant.

    Args:
        ours: our name of the field that is lacking.
        there: the names of the fields that are there.
        also: another field of ours, to be named in the same line if it has a usual name. Default: None.
    """
    others = [str(name) for name in there if name not in OURS]
    found = _usual(ours, others) or nearest(ours, others)
    shown = ", ".join([*map(str, there)][:SHOWN]) + (f", … ({len(there)} in all)" if len(there) > SHOWN else "")
    if not others:
        return f"it has {shown or 'no fields'}"
    more = f', "{also}": "{second}"' if also and (second := _usual(also, others)) else ""
    line = f'fields={{"{ours}": "{found or "ITS NAME"}"{more}}}'
    return f"it has {shown}; if one of these is meant, write {line}"


def _usual(ours: str, others: Collection[str]) -> str | None:
    """Return which of the ``others`` is a name that this field of ours usually has elsewhere."""
    lower = {name.lower(): name for name in others}
    return next((lower[name] for name in USUAL.get(ours, ()) if name in lower), None)


def no_column(ours: str, theirs: str, there: Collection[str]) -> str:
    """Return what to say of a column that ``fields`` names and that is not there.

    Args:
        ours: our name of the field.
        theirs: the column that it was said to be.
        there: the columns that are there.
    """
    if ours in there and ours not in OURS:  # as in rename_columns of datasets, which takes the old name first
        meant = theirs if theirs in OURS else next((own for own, usual in USUAL.items() if theirs in usual), theirs)
        return f'no column {theirs!r}, but {ours!r}: our name comes first, write fields={{"{meant}": "{ours}"}}'
    return f"no column {theirs!r} for {ours}: {named_otherwise(ours, there)}"
