"""The sources of a packing: audio of one list, or features of any number of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uio_pipes.base.errors import ListError
from uio_pipes.prep.packing.features import FeatureSettings
from uio_pipes.prep.packing.grouping import PackSettings
from uio_pipes.prep.reading.utterance_lists import UtteranceList, names_features, open_list
from uio_pipes.prep.writing.tar_shard import TARS


def open_sources(
    sources: Sequence[str], texts: Sequence[str] | None, settings: PackSettings, segments: str | None, allow_pipes: bool
) -> tuple[UtteranceList, PackSettings]:
    """Return the utterances of ``sources``, and the settings by which they are packed. Raises: ListError."""
    sources = [source.rstrip("/") or "/" for source in sources]
    stored = [names_features(source) for source in sources]
    if (settings.features is not None or any(stored)) and not settings.name.endswith(TARS):
        raise ListError("features are packed into tars; a TouchDataset holds audio")
    if not any(stored):
        return _audio(sources, texts, settings, segments, allow_pipes), settings
    if not all(stored):
        raise ListError(f"{sources[stored.index(False)]} does not name features, as {sources[stored.index(True)]} does")
    if segments is not None:
        raise ListError("segments cut recordings, and features are of utterances already: leave them out")
    features = settings.features or FeatureSettings()
    if features.conf is not None:
        raise ListError(f"{sources[0]} has features already: leave --features out, or name a list of audio")
    from uio_pipes.prep.reading.feature_tables import FeatureTables  # only here: it needs torch

    settings = replace(settings, form="as-is", sample_rate=None, features=features)
    return FeatureTables(sources, texts, measured=bool(settings.groups)), settings


def _audio(
    sources: Sequence[str], texts: Sequence[str] | None, settings: PackSettings, segments: str | None, allow_pipes: bool
) -> UtteranceList:
    if len(sources) > 1:
        raise ListError(
            f"{sources[0]} and {len(sources) - 1} more are not features: of audio, one list is packed at a time (join "
            "raw lists with cat, Kaldi folders with utils/combine_data.sh)"
        )
    if texts:
        raise ListError(
            "transcripts of their own (--text) belong to feats.scp: a raw list and a Kaldi folder have them"
        )
    if settings.features is not None and settings.features.conf is None:
        raise ListError(f"{sources[0]} has audio: say by --features which features are to be computed of it")
    return open_list(sources[0], segments, allow_pipes, needs_text=texts is not None)
