"""``from_conversations``: conversations of text and audio, one per line, in any order and in the usual formats."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

from uio_pipes.base.checks import require, require_root
from uio_pipes.base.errors import DataError, LeftOut
from uio_pipes.base.urls import AnyPath
from uio_pipes.formats.naming import names_of
from uio_pipes.io.access import Access, AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.format import RowPlace, key_of
from uio_pipes.sources.nemo.source import ListNemo, ManifestPaths, data_sets
from uio_pipes.sources.nemo.table import cut
from uio_pipes.sources.seen import Found, Seen

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
_BESIDE = ("audio", "audios", "sound", "speech", "ori_sound")  # names of a line's recordings; the first one counts
_OF_PART = ("audio", "audio_url", "path", "url")  # and of a part's
_TURNS = ("messages", "conversations")


class SpokenPart(NamedTuple):
    """A recording in a turn. ``path``: None for one that is named beside the turns; ``times``: what has ``offset`` and
    ``duration`` of it, or lists of them by ``number``."""

    path: str | None
    times: Mapping[str, Any]
    number: int = 0

    def time(self, name: str) -> Any:
        value = self.times.get(name)
        if not isinstance(value, list):
            return value
        if len(value) != 1 and self.number >= len(value):
            message = f"{name} is {value}, and this is recording {self.number + 1}: give one number for each, or one"
            raise DataError("bad_segment", message)
        return value[0 if len(value) == 1 else self.number]


TurnPart = str | SpokenPart


class ConversationTurn(NamedTuple):
    """A turn. ``rest``: what its message says beside role and content, such as ``tool_calls``."""

    role: str
    parts: list[TurnPart]
    rest: Mapping[str, Any]


def read_turns(line: dict[str, Any], tag: re.Pattern[str]) -> tuple[list[dict[str, Any]], list[SpokenPart]]:
    """Take turns and recordings out of ``line``, and return them: messages of ``role`` and ``content``, and a recording
    for each part of audio. ``tag``: what stands for audio in texts.

    Raises: DataError ``missing_turns``, ``bad_turn``, ``missing_audio``, ``audio_mismatch``, ``bad_segment``.
    """
    name = next((name for name in _TURNS if name in line), "")
    if not name:
        message = f"the line has neither messages nor conversations (its names: {', '.join(line)})"
        raise DataError("missing_turns", f'{message}: say which it is, as in fields={{"messages": "dialogue"}}')
    given = line.pop(name)
    if not isinstance(given, list) or not given:
        raise DataError("missing_turns", f"{name} must be a list of turns, not {given!r:.40}: correct the line")
    typed, turns = any(isinstance(turn, dict) and turn.keys() >= {"value", "type"} for turn in given), []
    for number, turn in enumerate(given, 1):
        try:
            turns.append(_turn(turn, typed, tag))
        except DataError as error:
            raise error.within(f"turn {number}") from error
    if name == "conversations":  # turns of one role become one, with a blank between them, as in NeMo
        runs = [(role, [turn.parts for turn in some]) for role, some in groupby(turns, lambda turn: turn.role)]
        turns = [ConversationTurn(role, reduce(lambda a, b: [*a, " ", *b], parts), {}) for role, parts in runs]
    _put_recordings(turns, line)
    messages = [{**turn.rest, "role": turn.role, "content": _content(turn.parts)} for turn in turns]
    return messages, [part for turn in turns for part in turn.parts if isinstance(part, SpokenPart)]


def _turn(turn: Any, typed: bool, tag: re.Pattern[str]) -> ConversationTurn:
    if not isinstance(turn, dict):
        raise _bad(f"it must be an object, not {turn!r:.40}")
    role = turn.get("from", turn.get("role"))
    if not isinstance(role, str) or not role:
        raise _bad(f"its role must be a name in `from` or `role`, not {role!r:.40}")
    role = _ROLES.get(role.lower(), role)
    rest = {name: value for name, value in turn.items() if name not in ("from", "role", "value", "content")}
    content = turn.get("content", turn.get("value"))
    if content is None and "value" not in turn and any(value is not None for value in rest.values()):
        content = ""  # as where tools are called
    if typed:
        parts = [_of_type(turn, "value")]
    elif isinstance(content, list):
        parts = [_of_part(part) for part in content]
    elif not isinstance(content, str):
        raise _bad(f"its text, `value` or `content`, must be a string, not {content!r:.40}")
    else:
        parts = list(_split(content, turn, tag)) if role == "user" else [content]
    return ConversationTurn(role, parts, rest)


def _of_type(turn: dict[str, Any], name: str) -> TurnPart:
    """Return what a turn of NeMo's, or a part of text, is."""
    kind, value = turn.get("type"), turn.get(name)
    if kind not in ("text", "audio"):
        raise _bad(f"its type is {kind!r:.40}, not text or audio")
    if not isinstance(value, str) or (kind == "audio" and not value):
        what = "text" if kind == "text" else "path"
        raise _bad(f"its {what}, `{name}`, must be a string, not {value!r:.40}")
    return value if kind == "text" else SpokenPart(value, turn)


def _of_part(part: Any) -> TurnPart:
    if not isinstance(part, dict):
        raise _bad(f"a part of it must be an object, not {part!r:.40}")
    if part.get("type") != "audio":
        return _of_type(part, "text")
    name = next((name for name in _OF_PART if part.get(name) is not None), None)
    return SpokenPart(None, part) if name is None else _of_type(part, name)


def _bad(problem: str) -> DataError:
    return DataError("bad_turn", f"{problem}: correct the line")


def _split(text: str, turn: dict[str, Any], tag: re.Pattern[str]) -> Iterator[TurnPart]:
    """Yield the texts between tags as they are, but no blank ones, and a recording for each tag."""
    between = tag.split(text)
    for number, piece in enumerate(between):
        if number:
            yield SpokenPart(None, turn)
        if piece.strip() or len(between) == 1:
            yield piece


def _put_recordings(turns: list[ConversationTurn], line: dict[str, Any]) -> None:
    """Give the places for audio the recordings that the line names beside its turns.

    One recording may have several places, one place takes all of several, and otherwise they must be equally many.
    """
    spoken = [part for turn in turns for part in turn.parts if isinstance(part, SpokenPart)]
    places = sum(part.path is None for part in spoken)
    if spoken and not places:
        return
    paths, problem = _beside(line), ""
    if places and not paths:
        message = f"the turns have {places} places for audio, but the line has none ({', '.join(_BESIDE)})"
        problem = f"{message}: name it, or if it is text, choose another tag with audio_tag=…"
    elif paths and not places:
        problem = f"the line has {len(paths)} recordings, but no place for them in the turns: choose audio_tag=…"
    elif len(paths) > 1 and places not in (1, len(paths)):
        problem = f"the line has {len(paths)} recordings and {places} places for them: correct the line"
    if problem:
        raise DataError("audio_mismatch", problem)
    numbers = [range(len(paths))] if places == 1 else [[0 if len(paths) == 1 else at] for at in range(places)]
    chosen = iter(numbers)
    for turn in turns:
        turn.parts[:] = [
            one
            for part in turn.parts
            for one in (
                [SpokenPart(paths[at], part.times, at) for at in next(chosen)]
                if isinstance(part, SpokenPart) and part.path is None
                else [part]
            )
        ]


def _beside(line: dict[str, Any]) -> list[str]:
    """Take the paths out of the line."""
    name = next((name for name in _BESIDE if line.get(name)), None)
    if name is None:
        return []
    given = line.pop(name)
    paths = given if isinstance(given, list) else [given]
    if not all(isinstance(path, str) and path for path in paths):
        message = f"{name} must be a path, or several in a list, not {given!r:.80}: correct the line"
        raise DataError("missing_audio", message)
    return paths


def _content(parts: list[TurnPart]) -> str | list[dict[str, str]]:
    content: list[dict[str, str]] = []
    for part in parts:
        if isinstance(part, SpokenPart):
            content.append({"type": "audio"})
        elif content and content[-1]["type"] == "text":
            content[-1]["text"] += part
        else:
            content.append({"type": "text", "text": part})
    if any(part["type"] == "audio" for part in content):
        return content
    return content[0]["text"] if content else ""


TAGS = ("<sound>", "<speech>", "<audio>")
_TIMES = ("start", "end", "duration")


def recordings_of(fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each recording of a conversation as the fields of an utterance; nothing for other data."""
    for number, wav in enumerate(fields["audio"] if "messages" in fields else ()):
        times = {name: fields[f"audio_{name}"][number] for name in _TIMES if f"audio_{name}" in fields}
        yield {"key": fields["key"], "wav": wav, **times}


def _times(spoken: SpokenPart, number: int) -> dict[str, Any]:
    try:
        row = {"offset": spoken.time("offset"), "duration": spoken.time("duration")}
        cut(row)
    except DataError as error:
        raise error.within(f"recording {number}") from error
    return row


@dataclass(frozen=True)
class ListConversations(ListNemo):
    """Conversations of JSON lines. ``tags``: what stands for audio in texts."""

    name: ClassVar[str] = "list_conversations"
    sentence: ClassVar[str] = (
        "conversations: NeMo's `multimodal_conversation` and `share_gpt`, Hugging Face's `messages`"
    )
    wanted: ClassVar[str] = 'a conversation is {"messages": […]} or {"conversations": […]}, one a line'

    tags: tuple[str, ...] = TAGS

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not seen.has(*_TURNS):
            return None
        lacks = "no utterances of one recording each"
        return Found("conversations in JSON lines", from_conversations, (seen.path,), lacks=lacks)

    def utterance(self, row: dict[str, Any], at: RowPlace) -> dict[str, Any]:
        """Return the fields of a conversation. Raises: LeftOut ``skipme``, DataError."""
        custom, key = row.get("custom"), self.key(row, at)
        if isinstance(custom, dict) and custom.get("_skipme"):
            raise LeftOut("skipme", "the line is marked with _skipme")
        messages, spoken = read_turns(row, self._tag)
        paths = [str(one.path) for one in spoken]
        if self.tars is None:
            audio = [self.audio(path, at) for path in paths]
        else:
            audio = [at.rows.member(row, path, at.file) for path in paths]
        times = [_times(one, number) for number, one in enumerate(spoken, 1)]
        row |= {"key": key, "messages": messages, "audio": audio}
        for name in _TIMES:
            values = [one.get(name) for one in times]
            if any(value is not None for value in values) if name != "duration" else values and None not in values:
                row[f"audio_{name}"] = values
        return row

    def key(self, row: dict[str, Any], at: RowPlace) -> str:
        return key_of(row, at)

    @cached_property
    def _tag(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self.tags, key=len, reverse=True))))


@reaches_files
def from_conversations(
    manifest: ManifestPaths,
    tarred_audio: ManifestPaths | None = None,
    *,
    audio_tag: str | Sequence[str] = TAGS,
    audio_root: AnyPath | None = None,
    fields: Mapping[str, str] | None = None,
    shuffle: bool = False,
    **access: Unpack[AccessOptions],
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
    that part is read, up to ``duration`` (``audio_start``, ``audio_end``, ``audio_duration``). The ``key`` is the
    line's ``key`` or ``id``, or ``FILE:LINE``; other names are fields, too. A line whose ``custom`` has ``_skipme`` is
    left out and counted.

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
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if a manifest is missing, empty or not one, or manifests and tars do not
            pair.
    """
    manifests, tars = data_sets("from_conversations", manifest, tarred_audio)
    tags = (audio_tag,) if isinstance(audio_tag, str) else tuple(audio_tag)
    ok = bool(tags) and all(isinstance(tag, str) and tag for tag in tags)
    require(ok, "from_conversations", "audio_tag must be a tag, or several", audio_tag, 'as in audio_tag="<audio>"')
    reached = Access.of("from_conversations", **access)
    names, root = names_of("from_conversations", fields), require_root("from_conversations", audio_root)
    return ListConversations(manifests, shuffle, reached, root, tars, names, tags).pipeline
