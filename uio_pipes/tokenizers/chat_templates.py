"""Chat templates: the text around the turns of a conversation, and which parts of it have a loss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol

from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.tokenizers.packages import TransformersTokenizer


class Turn(NamedTuple):
    """One turn. ``parts``: its texts, and None for each recording; ``rest``: what its message says otherwise."""

    role: str
    parts: Sequence[str | None]
    rest: Mapping[str, Any]


class Piece(NamedTuple):
    """A text, or the place of a recording (``text``: the token that stands for it, if any)."""

    text: str
    loss: bool
    recording: bool = False


class ChatTemplate(Protocol):
    """A chat template: anything that knows the text around turns."""

    def pieces(self, turns: Sequence[Turn], tools: Any = None) -> list[Piece]:
        """Return all of the text, cut at recordings and where the loss begins or ends. Raises: DataError.

        ``tools``: the functions of which a Jinja template tells the model.
        """


class PlainTemplate:
    """Texts around the content of a turn, by role. Content and what follows it have a loss, if the role has."""

    def __init__(self, around: Mapping[str, str], loss: Iterable[str]) -> None:
        self.around = {role: text.split("{}") for role, text in around.items()}
        self.loss = frozenset(loss)

    def pieces(self, turns: Sequence[Turn], tools: Any = None) -> list[Piece]:
        """See :class:`ChatTemplate`."""
        return _joined(piece for number, turn in enumerate(turns, 1) for piece in self._pieces(number, turn))

    def _pieces(self, number: int, turn: Turn) -> Iterator[Piece]:
        if turn.role not in self.around:
            known = ", ".join(self.around)
            raise bad(f"turn {number} is of {turn.role!r}, of which template= says nothing (it has {known}): add it")
        before, after = self.around[turn.role]
        loss = turn.role in self.loss
        yield Piece(before, False)
        for part in turn.parts:
            yield Piece(part or "", loss, recording=part is None)
        yield Piece(after, loss)


_Render = Callable[..., str]

# Noncharacters of Unicode, which no text has
_RECORDING, _BEGIN, _END = "\ufdd0", "\ufdd1", "\ufdd2"
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_MACRO = f"{{% macro marked_by_uio() %}}{_BEGIN}{{{{ caller() }}}}{_END}{{% endmacro %}}\n"


class JinjaTemplate:
    """A Jinja template, such as a tokenizer of the package transformers has.

    What has a loss is what the template says by ``{% generation %}``, and otherwise what a turn adds to the text of
    those before it and to the prompt of generation.

    Args:
        tokenizer: the tokenizer that renders it.
        template: the template; None: the tokenizer's own.
        placeholder: the text that the template makes of a recording, with contents as lists of parts; None: contents
            are texts.
        loss: the roles that have a loss.

    Raises:
        PipelineError: there is no template.
    """

    def __init__(
        self, tokenizer: TransformersTokenizer, template: str | None, placeholder: str | None, loss: Iterable[str]
    ) -> None:
        self._tokenizer, self._placeholder, self._loss = tokenizer, placeholder, frozenset(loss)
        self._template = tokenizer.template(template)
        self._says = self._loss == {"assistant"} and _GENERATION.search(self._template) is not None
        if self._says:
            self._template = _MACRO + _GENERATION.sub(_call, self._template)
        self._mark = placeholder or _RECORDING
        self._token = placeholder if placeholder and tokenizer.token(placeholder) is not None else ""

    def pieces(self, turns: Sequence[Turn], tools: Any = None) -> list[Piece]:
        """See :class:`ChatTemplate`."""
        made = _joined(piece for text, loss in self._texts(turns, tools) for piece in self._cut(text, loss))
        given, found = sum(turn.parts.count(None) for turn in turns), sum(piece.recording for piece in made)
        if given != found:
            raise bad(
                f"the chat template makes {found} places of {given} recordings: check that "
                f"placeholder={self._placeholder!r} is what it makes of one, and that no text has it"
            )
        return made

    def _cut(self, text: str, loss: bool) -> Iterator[Piece]:
        first, *others = text.split(self._mark)
        yield Piece(first, loss)
        for other in others:
            yield Piece(self._token, loss, recording=True)
            yield Piece(other, loss)

    def _texts(self, turns: Sequence[Turn], tools: Any) -> Iterator[tuple[str, bool]]:
        """Yield the text in parts, each with whether it has a loss."""
        render = partial(self._render, [self._message(turn) for turn in turns], tools)
        if not self._says:
            text, at = render(), 0
            for number, turn in enumerate(turns, 1):
                if turn.role in self._loss:
                    begin = self._begin(number, turn, render, text)
                    end = len(text) if number == len(turns) else _shared(render(number), text, number)
                    if not at <= begin <= end:
                        raise _rewritten(number)
                    yield text[at:begin], False
                    yield text[begin:end], True
                    at = end
            yield text[at:], False
            return
        loss = False
        for part in re.split(f"([{_BEGIN}{_END}])", render()):
            if part in (_BEGIN, _END):
                loss = part == _BEGIN
            else:
                yield part, loss

    def _begin(self, number: int, turn: Turn, render: _Render, text: str) -> int:
        """Return where the part of ``text`` begins that turn ``number`` adds."""
        answers = turn.role == "assistant"
        if number > 1:
            return _shared(render(number - 1, answers), text, number)
        if answers:
            raise bad(
                "it begins with an answer of the assistant's, so it is unclear which part of the text is to be "
                "learned: put a turn of the user's before it, or give a plain template, as in "
                'template={"assistant": "<|assistant|>{}<|end|>"}'
            )
        return 0

    def _message(self, turn: Turn) -> dict[str, Any]:
        content: Any = "".join(_RECORDING if part is None else part for part in turn.parts)
        if self._placeholder is not None:
            audio = {"type": "audio", "audio": ""}  # templates ask for the one or the other
            content = [audio if part is None else {"type": "text", "text": part} for part in turn.parts]
        return {**turn.rest, "role": turn.role, "content": content}

    def _render(
        self, messages: list[dict[str, Any]], tools: Any, count: int | None = None, prompt: bool = False
    ) -> str:
        """Return the text of the first ``count`` turns, and after it that of the ``prompt`` of generation."""
        try:
            return self._tokenizer.render(messages[:count], self._template, prompt, tools)
        except PipelineError:
            raise
        except Exception as error:  # a template may do anything
            raise bad(f"the chat template refuses these turns ({type(error).__name__}: {error})") from error


def _call(found: re.Match[str]) -> str:
    left, end, right = found.groups()
    return f"{{%{left} {'endcall' if end else 'call marked_by_uio()'} {right}%}}"


def _joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces with neighbouring texts in one, if the loss is the same."""
    made: list[Piece] = []
    for (loss, recording), group in groupby((p for p in pieces if p.text or p.recording), key=lambda p: p[1:]):
        texts = [piece.text for piece in group]
        made += [Piece(text, loss, recording) for text in (texts if recording else ["".join(texts)])]
    return made


def bad(message: str) -> DataError:
    """Return the failure of a conversation that is malformed."""
    return DataError("bad_messages", message)


def _shared(before: str, text: str, number: int) -> int:
    """Return the length of the text of the first turns, with which ``text`` begins."""
    if not text.startswith(before):
        raise _rewritten(number)
    return len(before)


def _rewritten(number: int) -> DataError:
    return DataError(
        "rewritten_turns",
        f"the chat template changes the text of turn {number} or of earlier turns when others follow, so it is "
        "unclear which part of the text is to be learned: give one that marks it with {% generation %}, or a plain "
        "one (template=…)",
    )
