"""``from_nemo``: the utterances of NeMo's manifests, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uio_pipes.base.checks import require, require_paths, require_root
from uio_pipes.base.elsewhere import understood
from uio_pipes.base.urls import AnyPath
from uio_pipes.core.roles import Source
from uio_pipes.core.stage import NO_IDENTITY
from uio_pipes.formats.naming import FieldNames, names_of
from uio_pipes.io.access import CACHE_SIZE, PLAIN, Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.nemo.table import ManifestGroup, Manifests, NemoTable


@dataclass(frozen=True)
class ListNemo(Source):
    """Rows of NeMo's manifests. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_nemo"
    reasons: ClassVar[frozenset[str]] = frozenset(["skipme"])

    manifests: tuple[ManifestGroup, ...] = field(metadata=NO_IDENTITY)
    tars: tuple[ManifestGroup, ...] | None = field(default=None, metadata=NO_IDENTITY)
    shuffle: bool = False
    names: FieldNames = ()
    access: Access = field(default=PLAIN, repr=False)
    root: str | None = field(default=None, metadata=NO_IDENTITY)

    def table(self) -> Manifests:
        """Look through the manifests. Raises: ListError."""
        return NemoTable(self.manifests, self.tars, self.access, self.names, self.root)

    def count(self, counts: list[int], path: str) -> list[int] | None:
        return None if self.table().skips else super().count(counts, path)


ManifestPaths = AnyPath | Iterable[AnyPath | Iterable[AnyPath]]


@understood
def from_nemo(
    manifest: ManifestPaths,
    tarred_audio: ManifestPaths | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    root: AnyPath | None = None,
    shuffle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    cache: AnyPath | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from NeMo's manifests, with or without tars; their utterances are read in any order.

    A row ``{"audio_filepath": …, "duration": …, "text": …}`` gives the fields ``wav``, ``duration`` and ``txt``; with
    ``offset``, also ``start`` and ``end``, and the utterance is that part of the audio. All other names are kept as
    fields; those that end in ``_audio_filepath`` name files, too, which are found in the same way. The ``key`` is the
    row's ``key`` or ``id``, or else the file's name without its suffix, to which NeMo's ``-OFFSET-DURATION`` (in
    hundredths of a second) is added if the row has an ``offset``. A row with ``_skipme`` is left out and counted as
    ``skipme``.

    Nothing but the manifests is read for planning, since they give the durations. A tar's headers are read when its
    first member is needed, once in each process; ``uio index --text ''`` spares that.

    Args:
        manifest: manifest(s), plain or compressed: a path, URL or glob, with NeMo's braces for the shards
            (``manifest__OP_0..127_CL_.json``, ``{0..127}``, ``(0..127)``, …) and commas between several; or several in
            a list; or a list of such lists, one for each data set (NeMo's ``[[…], […]]``).
        tarred_audio: the tars (``audio__OP_0..127_CL_.tar``), given like the manifests. Sharded manifests pair with
            tars by the numbers in their names; rows of a single manifest by ``shard_id``; data sets by their order.
            Default: None, rows name audio files. A relative path starts at ``root``.
        fields: the names that fields have in the rows, by ours: ``{"txt": "text_pc"}``. Default: None, NeMo's names.
        root: folder or URL at which relative paths of audio start. Default: None, the manifest's folder or, if there is
            no such file, the working directory.
        shuffle: whether to deal all utterances in another order in each epoch: a random order of all, without a
            buffer. Default: False, the order of the manifests.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote files. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a manifest is missing, empty or not one, or manifests and tars do not
            pair.
    """
    manifests, tars = data_sets("from_nemo", manifest, tarred_audio)
    access = Access.of("from_nemo", storage_options, cache, cache_size)
    listing = ListNemo(manifests, tars, shuffle, names_of("from_nemo", fields), access, require_root("from_nemo", root))
    return Pipeline((listing,)).sharding_filter().load_records()


ManifestGroups = tuple[tuple[str, ...], ...]


def data_sets(start: str, manifest: Any, tarred_audio: Any) -> tuple[ManifestGroups, ManifestGroups | None]:
    """Return the names of the manifests and tars of each data set. Raises: PipelineError."""
    manifests = _groups(start, "manifest", manifest)
    tars = None if tarred_audio is None else _groups(start, "tarred_audio", tarred_audio)
    pairs = tars is None or len(tars) == len(manifests)
    counts = (len(manifests), len(tars or ()))
    require(pairs, start, "there must be as many data sets of tars as of manifests", counts, "pair the lists")
    return manifests, tars


def _groups(start: str, name: str, given: Any) -> ManifestGroups:
    nested = isinstance(given, (list, tuple)) and any(isinstance(each, (list, tuple)) for each in given)
    rule = f"{name} must be a path, or several in a list"
    return tuple(require_paths(start, rule, each) for each in (given if nested else [given]))
