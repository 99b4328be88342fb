"""Audio as Hugging Face's datasets hold it: ``{"bytes", "path"}``, or ``{"array", "sampling_rate"}`` once decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from uio_pipes.base.checks import is_whole
from uio_pipes.base.errors import DataError

UNDECODED = 'leave the audio undecoded, dataset.cast_column("audio", Audio(decode=False)): it is decoded with the batch'


def audio_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields ``wav``, and ``sample_rate`` of decoded audio. Raises: DataError ``missing_audio``."""
    for name in ("bytes", "path"):
        if value.get(name):
            return {"wav": value[name]}
    if value.get("array") is not None:
        rate = value.get("sampling_rate")
        return {"wav": value["array"]} | ({} if rate is None else {"sample_rate": rate})
    message = f"the audio has neither bytes nor a path ({', '.join(map(str, value)) or 'nothing'}): leave it out"
    raise DataError("missing_audio", message)


def check_rate(fields: Mapping[str, Any], place: str) -> None:
    """Check the rate of audio that is decoded already. Raises: DataError ``missing_sample_rate``."""
    if not is_whole(fields.get("sample_rate")):
        message = "samples need their sample_rate, a whole number of Hz"
        raise DataError("missing_sample_rate", message, url=place, member=fields["key"])
