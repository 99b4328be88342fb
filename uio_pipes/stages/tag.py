"""``tag``: fields that are the same for all utterances of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.hashing import Draws
from uio_pipes.core.per_utterance import PerUtterance
from uio_pipes.core.sample import MEASURED, Sample

_FIXED = MEASURED | {"key"}


@dataclass(frozen=True)
class Tag(PerUtterance):
    """Give every utterance the same fields, such as the language and the task of one source of a mix.

    ``lang`` and ``task`` become the lists ``langs`` and ``tasks`` of a padded batch.

    Args:
        fields: values by name: strings, numbers, True or False. They replace those of the data.
    """

    name: ClassVar[str] = "tag"

    fields: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        fields = self.fields
        ok = isinstance(fields, Mapping) and bool(fields) and all(isinstance(name, str) and name for name in fields)
        require(ok, self.name, "fields must be values by name", fields, 'as in {"lang": "en"}')
        for name, value in fields.items():
            require(name not in _FIXED, self.name, "a tag cannot be key, or of the audio", name, "choose another name")
            ok = isinstance(value, (str, int, float, bool))
            require(ok, self.name, f"{name} must be a string, a number, True or False", value, "give one value")

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(self.fields)

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields.update(self.fields)
