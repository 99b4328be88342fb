"""Stages for the transcript: ``normalize_text``, ``choose_text``, ``language``, ``tokenize``, and ``ctc_filter``, which
drops utterances with more labels than CTC can align."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any, ClassVar, cast

from uio_pipes.audio.length import Plan, measure
from uio_pipes.base.checks import check_names, is_number, is_whole, refuse, require
from uio_pipes.base.errors import DataError, LeftOut, PipelineError
from uio_pipes.base.hashing import Draws
from uio_pipes.core.lane import Lane, Site
from uio_pipes.core.ledger import UNKNOWN
from uio_pipes.core.roles import OfStream, Op
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Deferred, Node, Stage
from uio_pipes.core.stage_link import StageLink
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.formats.expressions import lookup
from uio_pipes.io.references import Ref
from uio_pipes.stages.batches.budget import waveform_samples
from uio_pipes.stages.utterances.filter import FilterNode
from uio_pipes.tokenizers import Tokenizer
from uio_pipes.tokenizers.base import has_blank, remove_blanks, tokens_and_labels, unk_id
from uio_pipes.tokenizers.unknown import EXAMPLES, UnknownShare


@dataclass(frozen=True)
class NormalizeText(OfStream):
    """Change ``txt`` by a function, or remove the blanks in Mandarin text.

    Args:
        function: gets the text and returns the new one. Default: None, which removes every run of blanks that has a
            Chinese character or Chinese punctuation on at least one side: ``"今天 iPhone 15 发布"`` becomes
            ``"今天iPhone 15发布"``. Blanks between words of other scripts stay. ``tokenize`` does this by itself if
            its tokenizer has no symbol for a blank.
        of: the text stream to work on, a field of the utterance. Default: "", ``txt``.
    """

    name: ClassVar[str] = "normalize_text"
    note: ClassVar[str] = "when the text is needed"
    reads = ("txt",)
    writes = ("txt",)

    function: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.function is None or callable(self.function)
        require(ok, self.name, "the argument must be a function of the text", self.function, "try str.upper")

    def apply(self, sample: Sample, draws: Draws) -> None:
        text = text_of(sample)
        new = remove_blanks(text) if self.function is None else self.function(text)
        if not isinstance(new, str):
            raise DataError("bad_text", f"normalize_text: the function gave {new!r}, which is not text")
        sample.fields["txt"] = new


def text_of(sample: Sample) -> str:
    """Return the sample's text. Raises: DataError ``missing_text`` if it has none."""
    text = sample.fields.get("txt")
    if not isinstance(text, str):
        there = named_otherwise("txt", sample.fields)
        raise DataError("missing_text", f"the utterance has no text: {there}")
    return text


_ONE = 1 << 32  # the greatest weight as a whole number, so that every machine draws the same


@dataclass(frozen=True)
class ChooseText(Op):
    """Choose ``txt`` among several transcripts of the utterance: the first that exists, or one drawn by weights.

    A transcript is there if it is text that is not empty; if all are empty, so is ``txt``. An utterance without any
    of them is the failure ``missing_text``. With ``segments``, name the transcripts there, too (``texts=``), so that
    they are joined, and put this stage after it.

    Args:
        names: names of the fields, such as ["txt", "whisper", "paraformer"]; dots lead into nested fields. Without
            weights, the first that is there is chosen.
        weights: for each name, how often it is drawn among those that are there, relative to the others, above 0.
            An utterance gets another draw in each epoch. Default: None, nothing is drawn.
    """

    name: ClassVar[str] = "choose_text"
    note: ClassVar[str] = "when the text is needed"
    writes = ("txt",)

    names: Sequence[str]
    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names(self.name, "names", self.names)
        object.__setattr__(self, "names", tuple(self.names))
        given = self.weights
        ok = given is None or (isinstance(given, (list, tuple)) and len(given) == len(self.names))
        ok = ok and all(is_number(weight) and weight > 0 for weight in given or ())
        require(ok, self.name, "weights must be a number above 0 for each name", given, "as in [3, 1]")
        object.__setattr__(self, "weights", None if given is None else tuple(given))

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(name.partition(".")[0] for name in self.names)

    @property
    def may_lack(self) -> frozenset[str]:  # type: ignore[override]
        return self.reads

    def apply(self, sample: Sample, draws: Draws) -> None:
        found = [(at, text) for at, name in enumerate(self.names) if (text := text_in(sample.fields, name)) is not None]
        if not found:
            raise DataError("missing_text", f"the utterance has none of {', '.join(self.names)}")
        said = [(at, text) for at, text in found if text] or found
        sample.fields["txt"] = said[self._drawn([at for at, _ in said], draws)][1]

    def _drawn(self, there: list[int], draws: Draws) -> int:
        """Return the number of the chosen one among those that are ``there``."""
        if self.weights is None:
            return 0
        scale = _ONE / max(self.weights)
        shares = [max(1, round(self.weights[at] * scale)) for at in there]
        left = draws.below(sum(shares))
        for number, share in enumerate(shares):
            left -= share
            if left < 0:
                return number
        raise AssertionError("a draw lies below the sum of the weights")


def text_in(fields: Mapping[str, Any], name: str) -> str | None:
    """Return the text ``name``, which a shard may hold as a member of its own; None if there is none.

    Raises: DataError ``bad_text``.
    """
    value = lookup(fields, name)
    value = value.read() if isinstance(value, Ref) else value
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError("bad_text", f"{name} is not UTF-8 ({error.reason})") from error
    return value if isinstance(value, str) else None


# Unicode ranges. A match is one unit: a word, or a character in scripts that put no blanks between words.
_UNITS = {
    "han": r"[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]",
    "kana": r"[\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9f]",
    "thai": r"[\u0e01-\u0e4e]",
    "latin": r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0300-\u036f\u1e00-\u1eff\uff21-\uff3a\uff41-\uff5a]+",
    "cyrillic": r"[\u0400-\u052f\u1c80-\u1c8f]+",
    "greek": r"[\u0370-\u03ff\u1f00-\u1fff]+",
    "arabic": r"[\u0620-\u065f\u066e-\u06d3\u06d5-\u06ef\u06fa-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc]+",
    "hebrew": r"[\u0591-\u05f4]+",
    "devanagari": r"[\u0900-\u0963\u0970-\u097f]+",
    "hangul": r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]+",
}
_FIND = re.compile("|".join(f"(?P<{script}>{unit})" for script, unit in _UNITS.items()))

_SCRIPTS = {
    "zh": "han", "ja": "kana", "ko": "hangul", "th": "thai", "el": "greek", "he": "hebrew", "hi": "devanagari",
    **dict.fromkeys(["en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "id", "vi"], "latin"),
    **dict.fromkeys(["ru", "uk", "bg"], "cyrillic"),
    **dict.fromkeys(["ar", "fa", "ur"], "arabic"),
}  # fmt: skip


@dataclass(frozen=True)
class Language(Op):
    """Detect the language of ``txt``: set ``lang`` (an ISO 639-1 code), and ``task`` to "transcribe", like WeNet.

    The batch then has ``langs`` and ``tasks``, lists of str.

    Args:
        detect: a function of the text that returns its language; ``limited_langs`` is then ignored. Default: None,
            which decides by the script that has the most units in the text: words, or characters for Chinese,
            Japanese and Thai. Chinese characters count as Japanese in a text with kana, and if "zh" is not among
            ``limited_langs``.
        limited_langs: codes of the languages that may be found. Each must have a script of its own: of en, fr, de
            and other Latin ones, for example, only one can be given. A tie, or a text in none of these scripts,
            goes to the first one. Default: ("zh", "en").
        needs_text: False leaves utterances without a text as they are. Default: True, they are ``missing_text``.
    """

    name: ClassVar[str] = "language"
    reads = ("txt",)
    writes = ("lang", "task")

    detect: Callable[[str], str] | None = None
    limited_langs: Sequence[str] = ("zh", "en")
    needs_text: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.detect is None or callable(self.detect)
        require(ok, self.name, "detect must be a function of the text", self.detect, "name it with detect=…")
        langs, remedy = self.limited_langs, "pass a function that distinguishes them with detect=…"
        ok = isinstance(langs, (list, tuple)) and bool(langs) and all(isinstance(lang, str) for lang in langs)
        require(ok, self.name, "limited_langs must be a list of languages", langs, "WeNet's is ['zh', 'en']")
        object.__setattr__(self, "limited_langs", tuple(langs))
        if self.detect is None:
            known = f"limited_langs must be of {', '.join(sorted(_SCRIPTS))}"
            require(all(lang in _SCRIPTS for lang in langs), self.name, known, langs, remedy)
            scripts = {_SCRIPTS[lang] for lang in langs}
            require(len(scripts) == len(langs), self.name, "each language must have a script of its own", langs, remedy)

    def check(self, before: Sequence[Stage]) -> None:
        if self.needs_text:
            super().check(before)

    def apply(self, sample: Sample, draws: Draws) -> None:
        if not self.needs_text and "txt" not in sample.fields:
            return
        text = text_of(sample)
        lang = self._by_script(text) if self.detect is None else self.detect(text)
        if not isinstance(lang, str):
            raise DataError("bad_language", f"detect gave {lang!r}, which is not a language")
        sample.fields["lang"], sample.fields["task"] = lang, "transcribe"

    def _by_script(self, text: str) -> str:
        units = Counter(match.lastgroup for match in _FIND.finditer(text))
        if "ja" in self.limited_langs and (units["kana"] or "zh" not in self.limited_langs):
            units["kana"] += units.pop("han", 0)
        return max(self.limited_langs, key=lambda lang: units[_SCRIPTS[lang]])  # the first of equals


def check_tokenizer(stage: str, tokenizer: Any) -> None:
    """Raises: PipelineError unless it is a tokenizer or a function of the text."""
    made = 'give one that is made: uio.CharTokenizer("lang_char.txt")'
    kind = isinstance(tokenizer, type) and isinstance(tokenizer, Tokenizer)  # `list` is a function of the text
    refuse(kind, stage, f"{tokenizer!r} is a class, not a tokenizer", made)
    ok = callable(tokenizer) or isinstance(tokenizer, Tokenizer)
    ok = ok and not hasattr(tokenizer, "convert_tokens_to_ids")  # transformers' tokenize() gives no labels
    remedy = (
        'pass uio.CharTokenizer("lang_char.txt"), uio.SentencePieceTokenizer("bpe.model"), '
        "uio.HuggingFaceTokenizer(tokenizer) for one of Hugging Face's, or a function"
    )
    require(ok, stage, "tokenizer must be a tokenizer or a function of the text", tokenizer, remedy)


@dataclass(frozen=True)
class Tokenize(OfStream):
    """Turn ``txt`` into ``tokens`` (list of str) and ``label`` (list of int); ``txt`` stays unchanged.

    It runs only when labels are needed: a filter on their number decodes no audio. If more than 1 % of the labels are
    ``<unk>``, a warning with examples is logged, once per rank and epoch, after 1,000 labels or at the end.

    Args:
        tokenizer: a :class:`Tokenizer` (characters, SentencePiece, Hugging Face, tiktoken, or one of WeNet's own),
            or any function of the text that returns the labels, or (tokens, labels), or a ``BatchEncoding``.
        remove_blanks: whether to remove the blanks beside Chinese characters first. Default: None, which removes
            them if the tokenizer has no symbol for a blank, since they would become ``<unk>``; a plain function
            gets its text as it is.
        of: the text stream to work on, a field of the utterance. Default: "", ``txt``.
    """

    name: ClassVar[str] = "tokenize"
    note: ClassVar[str] = "when labels are needed"
    reads = ("txt",)
    writes = ("tokens", "label")

    tokenizer: Tokenizer | Callable[[str], Any]
    remove_blanks: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tokenizer(self.name, self.tokenizer)

    @cached_property
    def _joins(self) -> bool:
        return not has_blank(self.tokenizer) if self.remove_blanks is None else self.remove_blanks

    def apply(self, sample: Sample, draws: Draws) -> None:
        sample.fields["tokens"], sample.fields["label"] = self._made_of(text_of(sample))

    def _made_of(self, text: str) -> tuple[list[str], list[int]]:
        return tokens_and_labels(self.tokenizer, remove_blanks(text) if self._joins else text)

    def labels_of(self, text: str) -> list[int]:
        """Return the labels of a text."""
        return self._made_of(text)[1]

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        unknown = unk_id(self.tokenizer)
        if unknown is None:
            return super().build(source, lane, site)
        return Deferred(source, _Watched(self, site, lane, unknown))


class _Watched(StageLink):
    """Tokenizes, and counts unknown tokens, but not in the state."""

    __slots__ = ("ledger", "place", "shown", "unk_id")

    def __init__(self, stage: Tokenize, site: Site, lane: Lane, unk_id: int) -> None:
        super().__init__(stage, site)
        self.place, self.ledger, self.unk_id = site.within(lane.source).removeprefix("/"), lane.ledger, unk_id
        self.shown = 0

    def run(self, sample: Sample) -> None:
        super().run(sample)
        if self.ledger.quiet:
            return
        stage, labels = cast(Tokenize, self.stage), sample.fields["label"]
        share = cast(UnknownShare, self.ledger.tallies.setdefault(self.place, UnknownShare()))
        share.labels += len(labels)
        if unknown := labels.count(self.unk_id):
            share.unknown += unknown
            if 2 * unknown > len(labels):
                self.ledger.lose(f"{stage.name} {UNKNOWN}")
            if self.shown < EXAMPLES:
                self.shown += 1
                tokens = sample.fields["tokens"]
                share.show(sample.key, sample.fields["txt"], tokens, labels, self.unk_id, stage.labels_of)


# kernels and strides of the convolutions over time, without padding, as in WeNet's and ESPnet's conv2d front ends
CONVOLUTIONS = {1: (), 4: ((3, 2), (3, 2)), 6: ((3, 2), (5, 3)), 8: ((3, 2), (3, 2), (3, 2))}


@dataclass(frozen=True)
class CtcFilter(Op):
    """Leave out utterances whose CTC loss would be infinite, and count them as ``ctc_too_short``.

    A CTC alignment needs one step for each label and a blank between equal neighbours (Graves et al. 2006), so an
    utterance stays if ``len(label) + repeats <= subsampled frames``. Put it after everything that changes lengths
    or labels, and before the batches. It decides by the planned length and decodes nothing; an utterance that turns
    out shorter than planned is checked again when the batch is made.

    Args:
        subsampling: how the model shortens its input: 4, 6 or 8 for WeNet's ``conv2d``, ``conv2d6`` and ``conv2d8``
            (4 turns T frames into ((T - 1) // 2 - 1) // 2), 1 for none, or a function from the number of frames (of
            audio samples if there is no feature stage before) to the number of steps. Default: 4.
    """

    name: ClassVar[str] = "ctc_filter"
    reasons = ("ctc_too_short",)
    note: ClassVar[str] = "by the plan: nothing is decoded"
    reads = ("label", "feat", "wav", "sample_rate")
    may_lack = ("feat", "wav", "sample_rate")  # one of them

    subsampling: int | Callable[[int], int] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = (is_whole(self.subsampling) and self.subsampling in CONVOLUTIONS) or callable(self.subsampling)
        rule = f"subsampling must be one of {sorted(CONVOLUTIONS)} or a function of the number of frames"
        require(ok, self.name, rule, self.subsampling, "give a function that computes it as your model does")

    def build(self, source: Node, lane: Lane, site: Site) -> Node:
        return FilterNode(super().build(source, lane, site), lane, self)

    def reason(self, sample: Sample) -> str | None:
        """Return the reason to leave the sample out, by its plan; None if it stays."""
        return None if needed(sample["label"]) <= self.steps(sample.plan) else "ctc_too_short"

    def apply(self, sample: Sample, draws: Draws) -> None:
        length, label = measure(sample.fields), sample.fields["label"]
        if length is not None and needed(label) > self.steps(length):
            raise LeftOut("ctc_too_short", f"{len(label)} labels, {self.steps(length)} steps of CTC")

    def steps(self, plan: Plan) -> int:
        """Return the length of the encoder's output. Raises: PipelineError if it needs frames but gets a waveform."""
        if callable(self.subsampling):
            return self.subsampling(waveform_samples(plan, self.name) if plan.frames is None else plan.frames)
        if plan.frames is None:
            raise PipelineError(
                f"{self.name}: subsampling={self.subsampling} counts feature frames, but there are no features here; "
                "put it after .fbank(), or give a function of the number of audio samples"
            )
        steps = plan.frames
        for kernel, stride in CONVOLUTIONS[self.subsampling]:
            steps = (steps - kernel) // stride + 1
        return max(0, steps)


def needed(label: Sequence[int]) -> int:
    """Return the fewest steps that CTC needs for ``label``."""
    repeats: int = sum(map(eq, label, label[1:]))
    return len(label) + repeats
