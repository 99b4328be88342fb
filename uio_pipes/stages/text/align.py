"""``align``: the text stream of a full-duplex model, a token for each frame of its audio codec."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import Any, ClassVar

import torch

from uio_pipes.audio.length import Plan
from uio_pipes.audio.timeline import Spans, Timeline, gaps
from uio_pipes.base.checks import is_whole, refuse, require
from uio_pipes.base.errors import DataError, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.capabilities import Grid, HasGrid
from uio_pipes.core.roles import Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Trait, must_be
from uio_pipes.stages.text.tokenize import Tokenize, check_tokenizer
from uio_pipes.tokenizers import Tokenizer

_WORDS = 1 << 16  # whose tokens are remembered
_EDGE = -1e-6  # seconds: a word at the beginning of a crop may be earlier by an error of floats


@dataclass(frozen=True)
class Align(HasGrid, Op):
    """Put the words of ``timeline`` on the frames of the codec, as a first column of ``feat``: Moshi's text stream.

    ``feat`` (T, N), the codes of an audio codec, becomes (T, 1 + N) int64. An utterance with decoded audio and no codes
    gets (T, 1), with T = ⌈seconds × ``rate``⌉. The planned length is counted in these frames.

    Each word is tokenized by itself. Its tokens come one a frame, from the one on in which it begins, in place of those
    of the word before that are still waiting. The frame before them has ``end_of_text_padding`` if there was none;
    frames after them ``in_word_padding`` as long as the word lasts, and all others ``text_padding``. Words that begin
    before the utterance, and those that do not last, are left out. The stream equals that of moshi-finetune's
    ``Interleaver``; the defaults are what it uses for Moshi. Where the timeline is not annotated, or None, there is
    ``zero_padding``. An utterance without the field is the failure ``missing_timeline``.

    Args:
        tokenizer: as for ``tokenize``. Events that have token ids are not tokenized.
        rate: frames of the codec in a second. Default: 12.5.
        main: the main speaker, by its name or by the number of its channel, from 0. Default: "SPEAKER_MAIN".
        keep_main_only: whether to leave out what others say. Default: True.
        bos_eos: the tokens before the first word of the main speaker after another one's, and before the first word of
            another one after the main speaker's. Needs ``keep_main_only=False``. Default: None, there are none.
        keep_and_shift: whether tokens that still wait when the next word begins come before its own, instead of being
            dropped. Default: False.
        audio_delay: seconds by which the text comes before the audio; words that end before are left out. Below 0 it
            comes later, after ``zero_padding``. Default: 0.0.
        text_padding: the token of frames without text. Default: 3.
        end_of_text_padding: the token of the frame before a word. Default: 0.
        in_word_padding: the token of frames in which a word goes on. Default: None, which means ``text_padding``.
        zero_padding: what stands for an unknown token, for which the model has no embedding. Default: -1.
    """

    name: ClassVar[str] = "align"
    reads = ("feat", "timeline", "wav", "sample_rate")
    may_lack = ("feat", "wav", "sample_rate")
    writes = ("feat",)
    traits: ClassVar[Trait] = Trait.ONE_TO_ONE | Trait.TAKES_PCM

    tokenizer: Tokenizer | Callable[[str], Any]
    rate: float = must_be(12.5, "frames a second, above 0", lambda n: n > 0, "Mimi's is 12.5")
    main: str | int = "SPEAKER_MAIN"
    keep_main_only: bool = True
    bos_eos: tuple[int, int] | None = None
    keep_and_shift: bool = False
    audio_delay: float = 0.0
    text_padding: int = 3
    end_of_text_padding: int = 0
    in_word_padding: int | None = None
    zero_padding: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tokenizer(self.name, self.tokenizer)
        pair = self.bos_eos
        ok = pair is None or (isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(is_whole, pair)))
        require(ok, self.name, "bos_eos must be two tokens", pair, "as in (1, 2)")
        object.__setattr__(self, "bos_eos", pair and tuple(pair))
        both = pair is not None and self.keep_main_only
        refuse(both, self.name, "bos_eos marks who speaks, but only one does", "add keep_main_only=False")

    def grid(self, before: Grid | None, sample_rate: int) -> Grid:
        return Grid(1 / self.rate, 0.5 / self.rate)

    def plan(self, plan: Plan | None, sample: Sample, draws: Draws) -> Plan | None:
        if plan is None or plan.frames is not None:
            return plan
        return plan.with_frames(ceil(plan.samples * self.rate / plan.sample_rate))

    def apply(self, sample: Sample, draws: Draws) -> None:
        fields = sample.fields
        if "timeline" not in fields:
            remedy = "give it one by its source or a map, or None if nothing is known of its text"
            raise DataError("missing_timeline", f"the utterance has no timeline of its words: {remedy}")
        codes = self._codes(sample)
        text = torch.tensor(self.stream(fields["timeline"], len(codes)), dtype=torch.int64)
        fields["feat"] = torch.cat([text.unsqueeze(1), codes], dim=1)

    def _codes(self, sample: Sample) -> torch.Tensor:
        """Return codes (T, N) int64, with N = 0 if there is only audio. Raises: PipelineError."""
        feat, fields = sample.fields.get("feat"), sample.fields
        if feat is None:
            frames = ceil(fields["wav"].shape[-1] * self.rate / fields["sample_rate"])
            return torch.empty((frames, 0), dtype=torch.int64)
        codes = torch.as_tensor(feat)
        if codes.is_floating_point():
            problem = f"the feat of {sample.key} is no codes, which are whole numbers, but {codes.dtype}"
            raise PipelineError(f"align: {problem}: put .encoded(…) with a codec before it, or leave out the features")
        return (codes.unsqueeze(1) if codes.ndim == 1 else codes).long()

    def stream(self, timeline: Timeline | None, frames: int) -> list[int]:
        """Return the token of each frame."""
        if timeline is None:
            return [self.zero_padding] * frames
        row, waiting = [self.text_padding] * frames, list[int]()
        in_word = self.text_padding if self.in_word_padding is None else self.in_word_padding
        arrivals = [*self._arrivals(timeline, frames), (frames, 0, ())]
        for (first, last, tokens), (following, _, _) in pairwise(arrivals):
            waiting = [*waiting, *tokens] if self.keep_and_shift else [*tokens]
            said, waiting = waiting[: following - first], waiting[following - first :]
            for at, token in enumerate(said, first):
                if at and row[at - 1] in (self.text_padding, in_word):
                    row[at - 1] = self.end_of_text_padding
                row[at] = token
            for at in range(first + len(said), min(last + 1, following)):
                row[at] = in_word
        for first, last in self._unknown(timeline.known, frames):
            row[first:last] = [self.zero_padding] * (last - first)
        return row

    def _arrivals(self, timeline: Timeline, frames: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield of each word the frame in which it begins, that in which it ends, both at most ``frames``, and its
        tokens."""
        spoke = False  # whether the main speaker did so last
        for event in (one for one in timeline.events if one.start > _EDGE):
            main = (event.speaker if isinstance(self.main, str) else event.channel) == self.main
            if self.keep_main_only and not main:
                continue
            tokens = event.ids or self._tokens(event.text.strip())
            if self.bos_eos is not None and main != spoke:
                tokens = (self.bos_eos[spoke], *tokens)
            spoke = main
            if event.start < event.end and event.end > self.audio_delay:
                start, end = ((at - self.audio_delay) * self.rate for at in event[:2])
                yield max(0, int(min(start, frames))), int(min(end, frames)), tokens

    def _tokens(self, word: str) -> tuple[int, ...]:
        if (known := self._known.get(word)) is None:
            if len(self._known) >= _WORDS:
                self._known.clear()
            known = self._known[word] = tuple(self._tokenize.labels_of(word))
        return known

    @cached_property
    def _known(self) -> dict[str, tuple[int, ...]]:
        return {}

    @cached_property
    def _tokenize(self) -> Tokenize:
        return Tokenize(self.tokenizer)

    def _unknown(self, known: Spans | None, frames: int) -> Iterator[tuple[int, int]]:
        """Yield the frames, from one to before another, of which the text is unknown: those whose centre is outside
        ``known`` and, if the text comes later than the audio, those before it."""
        if self.audio_delay < 0:
            yield 0, min(frames, int(self.rate * -self.audio_delay))
        for span in gaps(known):
            first, last = (max(0, ceil(min((at - self.audio_delay) * self.rate, frames) - 0.5)) for at in span)
            yield first, max(first, last)
