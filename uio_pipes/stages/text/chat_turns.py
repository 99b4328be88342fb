"""The turns of an utterance: its own messages, or those that are made of its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any, NamedTuple

from uio_pipes.base.checks import require
from uio_pipes.base.errors import DataError
from uio_pipes.core.realize import Lengths
from uio_pipes.core.sample import Sample
from uio_pipes.formats.expressions import lookup
from uio_pipes.stages.text.tokenize import text_in
from uio_pipes.tokenizers.chat_templates import Turn, bad

MESSAGES, AUDIO, TOOLS = "messages", "audio", "tools"  # fields: the turns, their recordings, and functions to call


class TurnRecording(NamedTuple):
    """A recording in a conversation: its stream, and its planned lengths."""

    stream: str
    lengths: Lengths


class Pattern(NamedTuple):
    """A turn to be made: literal texts, each with the field after it, or "" at the end."""

    role: str
    parts: list[tuple[str, str]]


def patterns(stage: str, turns: object) -> list[Pattern]:
    """Return the turns that are to be made of fields. Raises: PipelineError."""
    rule, remedy = (
        "turns must list (role, text) for each turn",
        'as in [("user", "{wav}Transcribe."), ("assistant", "{txt}")]',
    )
    ok = isinstance(turns, (list, tuple)) and bool(turns)
    ok = ok and all(isinstance(turn, (list, tuple)) and list(map(type, turn)) == [str, str] for turn in turns)  # type: ignore[attr-defined]
    require(ok, stage, rule, turns, remedy)
    return [Pattern(role, _parts(stage, text)) for role, text in turns]  # type: ignore[attr-defined]


def _parts(stage: str, text: str) -> list[tuple[str, str]]:
    try:
        found = list(Formatter().parse(text))
    except ValueError:
        found = [("", "", "", None)]
    plain = all(name is None or (name and not spec and not conversion) for _, name, spec, conversion in found)
    require(plain, stage, "turns must contain field names in braces", text, "a brace itself is {{ or }}")
    return [(literal, name or "") for literal, name, _, _ in found]


def is_audio(sample: Sample, name: str) -> bool:
    """True if the field is a stream of audio, on which a stage works."""
    return name == "wav" or name in sample.chain.streams


def made(turns: Sequence[Pattern], sample: Sample) -> tuple[list[Turn], list[TurnRecording]]:
    """Return the turns that are made of the fields of ``sample``, and its recordings in them. Raises: DataError."""
    recordings: list[TurnRecording] = []
    found = []
    for role, pattern in turns:
        parts: list[str | None] = []
        for literal, name in pattern:
            parts.append(literal)
            if is_audio(sample, name):
                several = _recordings(sample, name)
                parts += [None] * len(several)
                recordings += several
            elif name:
                parts.append(_text(sample, name))
        found.append(Turn(role, parts, {}))
    return found, recordings


def _text(sample: Sample, name: str) -> str:
    text = text_in(sample.fields, name)
    if text is not None:
        return text
    if (value := lookup(sample.fields, name)) is None:
        raise DataError("missing_text", f"the utterance has no {name}, which turns= wants")
    remedy = f"if it is audio, put .decode_audio(of={name!r}) before"
    raise DataError("bad_text", f"{name}, which turns= inserts as text, is {type(value).__name__}, not text; {remedy}")


def _recordings(sample: Sample, stream: str) -> list[TurnRecording]:
    if stream == "wav" and sample.text_only:
        raise DataError("missing_audio", "the utterance has no wav, which turns= wants")
    return [TurnRecording(stream, one) for one in Lengths(sample, "" if stream == "wav" else stream).each]


def own(sample: Sample) -> tuple[list[Turn], list[TurnRecording]]:
    """Return the turns of the messages of ``sample``, and their recordings. Raises: DataError."""
    messages = sample.fields.get(MESSAGES)
    if messages is None:
        remedy = 'or make them: turns=[("user", "{wav}Transcribe."), ("assistant", "{txt}")]'
        raise DataError("missing_messages", f"the utterance has no `{MESSAGES}`: add them to its entry, {remedy}")
    if not isinstance(messages, (list, tuple)) or not messages:
        raise bad(f"its `{MESSAGES}` are no list of turns, but {messages!r:.80}")
    turns = [_turn(number, message) for number, message in enumerate(messages, 1)]
    wanted = sum(turn.parts.count(None) for turn in turns)
    recordings = _recordings(sample, AUDIO) if wanted or sample.fields.get(AUDIO, []) != [] else []
    if wanted != len(recordings):
        raise bad(
            f"its turns have {wanted} parts of audio, and `{AUDIO}` has {len(recordings)} recordings: each needs one"
        )
    return turns, recordings


def _turn(number: int, message: object) -> Turn:
    if not isinstance(message, Mapping) or not isinstance(role := message.get("role"), str):
        raise bad(f'turn {number} is not {{"role": …, "content": …}}, but {message!r:.80}')
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    content = message.get("content")
    if content is None and any(value is not None for value in rest.values()):  # as where tools are called
        content = ""
    parts = content if isinstance(content, (list, tuple)) else [{"type": "text", "text": content}]
    return Turn(role, [_part(number, part) for part in parts], rest)


def _part(number: int, part: Any) -> str | None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "audio":
        return None
    if kind == "text" and isinstance(text := part.get("text"), str):
        return text
    raise bad(
        f'the content of turn {number} has {part!r:.80}: it is a text, or a list of {{"type": "text", "text": …}} and '
        '{"type": "audio"}'
    )
