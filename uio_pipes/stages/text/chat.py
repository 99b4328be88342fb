"""``chat``: the tokens of a conversation, with places for its recordings."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar

from uio_pipes.base.checks import refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import ChecksNext
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.realize import Lengths
from uio_pipes.core.roles import Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage, least
from uio_pipes.core.stage_link import StageLink
from uio_pipes.stages.audio.decode import DecodeAudio
from uio_pipes.stages.text import chat_turns
from uio_pipes.stages.utterances.concat import Joins
from uio_pipes.tokenizers import Tokenizer
from uio_pipes.tokenizers.base import has_blank, remove_blanks, tokens_and_labels
from uio_pipes.tokenizers.chat_templates import ChatTemplate, JinjaTemplate, Piece, PlainTemplate
from uio_pipes.tokenizers.packages import TransformersTokenizer

IGNORE = -100  # torch's


@dataclass(frozen=True)
class Chat(ChecksNext, Op):
    """Turn a conversation into ``label``, all of its tokens with places for its recordings, and ``labels``, the same
    with -100 where no loss is.

    The conversation is the field ``messages``, a list of turns ``{"role": "user", "content": …}``. A content is a text,
    or a list of parts ``{"type": "text", "text": …}`` and ``{"type": "audio"}``; the n-th part of audio is the n-th
    recording in ``audio``, a list. With ``turns`` it is made of other fields. A Jinja template gets the field
    ``tools``, if there is one.

    ``audio_places`` has (first, count) for each recording: where its places are in ``label``, and how many; other
    streams have theirs (``wav_places``). It goes by the planned lengths of audio and decodes nothing: put it after
    what changes these. It runs only when labels are needed.

    What a conversation lacks, or has in another form, is the failure ``missing_messages``, ``bad_messages``,
    ``missing_text``, ``bad_text`` or ``missing_audio``; if no token has a loss, ``no_loss``. A chat template that
    changes earlier turns when others follow is ``rewritten_turns`` where several turns have a loss.

    Args:
        tokenizer: a tokenizer of the package ``transformers``. With a plain template also a :class:`Tokenizer`, or any
            function of the text that returns the labels, or (tokens, labels).
        template: a plain template, texts around the content by role, as in ``{"user": "<|user|>{}\\n", "assistant":
            "<|assistant|>{}<|end|>\\n"}``; or a Jinja template. Default: None, the tokenizer's own.
        turns: (role, text) for each turn, where a name in braces is the text of that field, or the place of the
            recording if it is a stream of audio, as in ``[("user", "{wav}Transcribe."), ("assistant", "{txt}")]``.
            ``{{`` is a brace. Default: None, the conversation is in ``messages``.
        places: a function of a recording's planned lengths that returns how many places it has, as in
            ``lambda n: n.frames // 4``. Default: None, one.
        placeholder: the text that the Jinja template makes of a part of audio, such as ``"<|AUDIO|>"``, if it takes
            contents as lists of parts. Default: None, it takes texts.
        audio_token: the token at the places of recordings. Default: None, that of ``placeholder`` if it is one token,
            or 0.
        loss: the roles whose turns have a loss: their content, and what ends the turn. If it is the assistant's alone,
            and the Jinja template has ``{% generation %}``, what that says. Empty: none. Default: ("assistant",).
        bos: a token to put first. Default: None. (Most Jinja templates have it.)
        eos: a token to put last, with a loss if the last turn has. Default: None.
    """

    name: ClassVar[str] = "chat"
    note: ClassVar[str] = "when labels are needed"

    tokenizer: Any
    template: Mapping[str, str] | str | None = None
    turns: Sequence[tuple[str, str]] | None = None
    places: Callable[[Lengths], int] | None = None
    placeholder: str | None = None
    audio_token: int | None = least(0, None, "give a token's number")
    loss: Sequence[str] = ("assistant",)
    bos: int | None = least(0, None, "give a token's number")
    eos: int | None = least(0, None, "give a token's number")

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = isinstance(self.loss, (list, tuple)) and all(isinstance(role, str) for role in self.loss)
        require(ok, self.name, "loss must be a list of roles", self.loss, 'as in ["assistant"]')
        require(
            self.places is None or callable(self.places), self.name,
            "places must be a function of a recording's lengths", self.places, "try lambda n: n.frames // 4",
        )  # fmt: skip
        if hasattr(self.tokenizer, "apply_chat_template"):
            processor = hasattr(self.tokenizer, "tokenizer") and not hasattr(self.tokenizer, "get_vocab")
            rule, kind = "tokenizer must be a tokenizer", type(self.tokenizer).__name__
            remedy = "give processor.tokenizer, and template=processor.chat_template"
            require(not processor, self.name, rule, kind, remedy)
            object.__setattr__(self, "tokenizer", TransformersTokenizer(self.tokenizer))
        object.__setattr__(self, "loss", tuple(self.loss))
        self._chat_template, self._patterns  # noqa: B018  wrong ones fail now

    @cached_property
    def _chat_template(self) -> ChatTemplate:
        tokenizer, template = self.tokenizer, self.template
        if isinstance(template, Mapping):
            ok = all(isinstance(text, str) and text.count("{}") == 1 for text in template.values())
            rule = "a plain template must have {} once in each text, for the content"
            require(ok, self.name, rule, template, 'as in {"user": "<|user|>{}\\n"}')
            ok = callable(self.tokenizer) or isinstance(self.tokenizer, (Tokenizer, TransformersTokenizer))
            remedy = "pass one of the package transformers, a uio.Tokenizer or a function"
            require(ok, self.name, "tokenizer must be a tokenizer or a function of the text", self.tokenizer, remedy)
            rule, remedy = "loss must name roles of the template", f"it has {', '.join(template)}"
            require(set(self.loss) <= set(template), self.name, rule, self.loss, remedy)
            sentence = "placeholder cannot be combined with a plain template, which inserts no text for a recording"
            refuse(self.placeholder is not None, self.name, sentence, "name the token by audio_token=")
            return PlainTemplate(template, self.loss)
        rule = "tokenizer must be one of the package transformers, unless template is a plain one"
        remedy = 'as in template={"user": "<|user|>{}\\n", "assistant": "<|assistant|>{}<|end|>\\n"}'
        require(isinstance(tokenizer, TransformersTokenizer), self.name, rule, tokenizer, remedy)
        rule = "template must be texts by role, or a Jinja template"
        require(template is None or isinstance(template, str), self.name, rule, template, remedy)
        rule = "placeholder must be the text that the template inserts for a recording"
        ok = self.placeholder is None or (isinstance(self.placeholder, str) and bool(self.placeholder))
        require(ok, self.name, rule, self.placeholder, 'as in "<|AUDIO|>"')
        return JinjaTemplate(tokenizer, template, self.placeholder, self.loss)

    @cached_property
    def _patterns(self) -> list[chat_turns.Pattern] | None:
        return None if self.turns is None else chat_turns.patterns(self.name, self.turns)

    @cached_property
    def _audio_token(self) -> int:
        if self.audio_token is None and self.placeholder is not None:
            return self.tokenizer.token(self.placeholder) or 0
        return self.audio_token or 0

    @property
    def _fields(self) -> frozenset[str]:
        """The fields that turns are made of."""
        return frozenset(name.partition(".")[0] for _, parts in self._patterns or () for _, name in parts if name)

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        own = [chat_turns.MESSAGES] if self._patterns is None else self._fields
        return frozenset([*own, chat_turns.TOOLS])

    @property
    def writes(self) -> frozenset[str]:  # type: ignore[override]
        streams = [chat_turns.AUDIO] if self._patterns is None else self._fields
        return frozenset(["label", "labels", *(f"{name}_places" for name in streams)])

    def check(self, before: Sequence[Stage]) -> None:
        super().check(before)
        work = [stage for stage in before if isinstance(stage, Op)]
        maker = next((stage.name for stage in work if _makes_labels(stage)), None)
        if maker is not None:
            raise PipelineError(f"chat makes labels of all texts, but {maker} has made some already: leave {maker} out")
        audio = {"wav", *(stage.of for stage in work if "txt" not in stage.reads)}
        named = Counter(name for _, parts in self._patterns or () for _, name in parts if name)
        twice = sorted(name for name in audio & named.keys() if named[name] > 1)
        rule = "turns must contain each stream of audio only once"
        require(not twice, self.name, rule, twice, "remove the others, or make a stream of a list of recordings")

    def check_next(self, stage: Stage) -> None:
        if isinstance(stage, Joins):
            rule = f"{stage.name} does not join the loss and the places that chat makes"
            raise PipelineError(f"{rule}: put {stage.name} before chat")
        if not isinstance(stage, Op) or isinstance(stage, DecodeAudio):
            return
        if _makes_labels(stage):
            raise PipelineError(f"chat has made labels of all texts already: leave {stage.name} out")
        of = stage.of or "wav"
        if f"{of}_places" in self.writes and type(stage).plan is not Op.plan:
            rule = f"{stage.name} changes the length of {of}, by which chat counts its places"
            raise PipelineError(f"{rule}: put chat after {stage.name}")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return _ChatNode(source, self, site)

    def apply(self, sample: Sample, draws: Draws) -> None:
        own = self._patterns is None
        turns, recordings = chat_turns.own(sample) if own else chat_turns.made(self._patterns or [], sample)
        pieces = self._chat_template.pieces(turns, sample.fields.get(chat_turns.TOOLS))
        ends = turns[-1].role in self.loss
        row = _Row(self._audio_token)
        row.add([] if self.bos is None else [self.bos], loss=False)
        streams = [chat_turns.AUDIO] if own else [name for name in self._fields if chat_turns.is_audio(sample, name)]
        places: dict[str, list[tuple[int, int]]] = {stream: [] for stream in streams}
        left = iter(recordings)
        for piece, labels in zip(pieces, self._labels(pieces), strict=True):
            if piece.recording:
                stream, lengths = next(left)
                places[stream].append(row.leave(self._places(lengths)))
            else:
                row.add(labels, piece.loss)
        row.add([] if self.eos is None else [self.eos], ends)
        if self.loss and all(label == IGNORE for label in row.labels):
            has, asked = (", ".join(dict.fromkeys(roles)) for roles in ([turn.role for turn in turns], self.loss))
            message = f"no token has a loss: the turns are of {has}, and those of {asked} have one if they have a text"
            raise DataError("no_loss", f"{message}: add such a turn, name its role in loss=, or give loss=[] for none")
        sample.fields |= {"label": row.tokens, "labels": row.labels}
        sample.fields |= {f"{stream}_places": found for stream, found in places.items()}

    def _labels(self, pieces: Sequence[Piece]) -> list[list[int]]:
        """Return the labels of each piece. Those with text between them are tokenized together."""
        made: list[list[int]] = []
        for apart, group in groupby(pieces, key=lambda piece: piece.recording and not piece.text):
            texts = [piece.text for piece in group]
            if apart:
                made += [[] for _ in texts]
            elif isinstance(self.tokenizer, TransformersTokenizer):
                made += self.tokenizer.labels(texts)
            else:
                joined = map(remove_blanks, texts) if self._joins else texts
                made += (tokens_and_labels(self.tokenizer, text)[1] for text in joined)
        return made

    @cached_property
    def _joins(self) -> bool:
        return not has_blank(self.tokenizer)  # as in ``tokenize``

    def _places(self, lengths: Lengths) -> int:
        count: Any = 1 if self.places is None else self.places(lengths)
        try:
            whole = operator.index(count)
        except TypeError:
            whole = -1
        if whole < 0:
            message = f"the function given as places returned {count!r}, not a whole number of 0 or more"
            raise DataError("bad_length", message)
        return whole


def _makes_labels(stage: Op) -> bool:
    return "label" in stage.writes and not stage.of


class _Row:
    """The tokens and labels of a conversation, as far as they are made."""

    def __init__(self, audio_token: int) -> None:
        self.audio_token, self.tokens, self.labels = audio_token, list[int](), list[int]()

    def add(self, tokens: Sequence[int], loss: bool) -> None:
        self.tokens += tokens
        self.labels += tokens if loss else [IGNORE] * len(tokens)

    def leave(self, count: int) -> tuple[int, int]:
        """Add ``count`` places for a recording, and return the first one and how many there are."""
        first = len(self.tokens)
        self.add([self.audio_token] * count, loss=False)
        return first, count


class _ChatNode(Node):
    """Adds the stage to each sample's chain. It does not read streams of audio, whose planned lengths are enough."""

    def __init__(self, source: Node, stage: Chat, site: Site) -> None:
        super().__init__(source)
        self.stage, self.site = stage, site
        self.links: dict[tuple[str, ...], StageLink] = {}

    def next(self) -> Sample:
        sample: Sample = self.source.next()
        streams = sample.chain.streams
        if streams not in self.links:
            link = self.links[streams] = StageLink(self.stage, self.site)
            texts = link.reads - {"wav", *streams}
            link.reads, link.writes = texts, link.writes - {f"{name}_places" for name in texts}
        sample.chain = sample.chain.then(self.links[streams])
        return sample
