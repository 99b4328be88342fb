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


def named_otherwise(ours: str, there: Collection[str]) -> str:
    """Return the end of a message about a lacking field: what fields are there, and how to name the one that is meant.

    Args:
        ours: our name of the field that is lacking.
        there: the names of the fields that are there.
    """
    others = [str(name) for name in there if name not in OURS]
    lower = {name.lower(): name for name in others}
    found = next((lower[name] for name in USUAL.get(ours, ()) if name in lower), None) or nearest(ours, others)
    shown = ", ".join([*map(str, there)][:SHOWN]) + (f", … ({len(there)} in all)" if len(there) > SHOWN else "")
    if not others:
        return f"it has {shown or 'no fields'}"
    line = f'fields={{"{ours}": "{found or "ITS NAME"}"}}'
    return f"it has {shown}; if one of these is meant, write {line}"
