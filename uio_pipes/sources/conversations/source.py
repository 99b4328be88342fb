"""``from_conversations``: conversations of text and audio, in any order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from uio_pipes.base.checks import require
from uio_pipes.base.urls import AnyPath
from uio_pipes.core.stage import NO_IDENTITY, OUTSIDE, verbatim
from uio_pipes.formats.naming import names_of
from uio_pipes.io.access import CACHE_SIZE, Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.conversations.turns import TAGS, ConversationTable
from uio_pipes.sources.nemo.source import ListNemo, ManifestPaths, data_sets


@dataclass(frozen=True)
class ListConversations(ListNemo):
    """Conversations of JSON lines. ``shuffle``: in another order in each epoch, without a buffer."""

    name: ClassVar[str] = "list_conversations"

    tags: tuple[str, ...] = field(default=TAGS, metadata=verbatim("tags", OUTSIDE))
    root: str | None = field(default=None, metadata=NO_IDENTITY)

    def table(self) -> ConversationTable:
        """Look through the files. Raises: ListError."""
        return ConversationTable(self.manifests, self.tars, self.access, self.names, self.tags, self.root)


def from_conversations(
    manifest: ManifestPaths,
    tarred_audio: ManifestPaths | None = None,
    *,
    audio_tag: str | Sequence[str] = TAGS,
    audio_root: AnyPath | None = None,
    fields: Mapping[str, str] | None = None,
    shuffle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    cache: AnyPath | None = None,
    cache_size: int | str = CACHE_SIZE,
) -> Pipeline:
    """Start a pipeline from conversations in JSON lines, plain or compressed, which are read in any order.

    Each line is an utterance with ``messages``, a list of ``{"role": …, "content": …}``, and ``audio``, the list of its
    recordings, a stream to work on (``.decode_audio(of="audio")``). A content is a string or, with audio, a list of
    parts, ``{"type": "text", "text": …}`` and ``{"type": "audio"}``: one for each recording, in their order. Roles are
    ``user``, ``assistant``, ``system``, and others as they are in the file.

    A line has one of these shapes:

    - ``conversations`` of ``{"from": …, "type": "text" or "audio", "value": …}``, NeMo's ``multimodal_conversation``;
    - ``conversations`` of ``{"from": …, "value": …}``, ShareGPT's. Tags in the user's texts stand for the recordings in
      ``sound`` (or ``speech``, ``ori_sound``, ``audio``, ``audios``), a path or several in a list. One recording may
      have several tags, one tag takes all recordings, and otherwise they must be equally many;
    - ``messages`` of ``{"role": …, "content": …}``, as Hugging Face has them: a text, which may have such tags, or a
      list of parts, of which ``{"type": "audio"}`` may name its file in ``audio``, ``audio_url``, ``path`` or ``url``.

    In ``conversations``, turns of one role that follow one another become one. With ``offset`` in a turn of audio, only
    that part is read, up to ``duration`` (``audio_start``, ``audio_end``); ``duration`` is ``audio_duration``, by which
    lengths are planned. The ``key`` is the line's ``key`` or ``id``, or ``FILE:LINE``. All other names are kept as
    fields. A line whose ``custom`` has ``_skipme`` is left out and counted.

    Failures: ``missing_turns``, ``bad_turn``, ``missing_audio``, ``audio_mismatch``, ``bad_segment``.

    Args:
        manifest: JSONL file(s), given as for :func:`from_nemo`.
        tarred_audio: the tars that hold the audio, given and paired with the manifests as for :func:`from_nemo`.
            Default: None, lines name audio files. A relative path starts at the manifest's folder or, if there is no
            such file, at the working directory.
        audio_tag: what stands for audio in texts, one tag or several. Default: ("<sound>", "<speech>", "<audio>").
        audio_root: folder or URL at which relative paths start. Default: None, the manifest's folder.
        fields: the names that fields have in the lines, by ours: ``{"messages": "dialogue"}``. Default: None.
        shuffle: whether to deal all conversations in another order in each epoch: a random order of all, without a
            buffer. Default: False.
        storage_options: options for fsspec's file systems, as for :func:`list_files`. Default: None.
        cache: local folder that keeps copies of remote files. Default: None, no copies.
        cache_size: bytes that those copies may take, as a number or as text. Default: "100GB".

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a manifest is missing, empty or not one, or manifests and tars do not
            pair.
    """
    manifests, tars = data_sets("from_conversations", manifest, tarred_audio)
    tags = (audio_tag,) if isinstance(audio_tag, str) else tuple(audio_tag)
    ok = bool(tags) and all(isinstance(tag, str) and tag for tag in tags)
    require(ok, "from_conversations", "audio_tag must be a tag, or several", audio_tag, 'as in audio_tag="<audio>"')
    root = None if audio_root is None else os.fspath(audio_root)
    access = Access.of("from_conversations", storage_options, cache, cache_size)
    names = names_of("from_conversations", fields)
    listing = ListConversations(manifests, tars, shuffle, names, access, tags, root)
    return Pipeline((listing,)).sharding_filter().load_records()
