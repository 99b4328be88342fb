"""``uio dict`` and ``uio spm``: make a dictionary, or a SentencePiece model, of the texts in a list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.cmvn import ListType
from uio_pipes.cli.common import Json, keep_inputs, local_file, print_json, show_problems, verdict

if TYPE_CHECKING:
    from uio_pipes.prep.reading.texts import Texts
    from uio_pipes.prep.reading.utterance_lists import Bad

ListArgument = Annotated[
    str,
    typer.Argument(metavar="LIST", help="A list, or any data that `uio inspect` knows. Path or URL."),
]
Type = Annotated[
    ListType | None, typer.Option("--data-type", help="What LIST is; if not given, its first line decides.")
]


class SegmenterName(str, Enum):
    """Segmenters, which cut texts into words."""

    jieba = "jieba"


class Model(str, Enum):
    """Kinds of SentencePiece models."""

    bpe = "bpe"
    unigram = "unigram"


def dictionary(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="The file to write, as lang_char.txt.")],
    data_type: Type = None,
    non_lang_syms: Annotated[Path | None, typer.Option(help="Symbols kept whole, one a line, like {NOISE}.")] = None,
    segmenter: Annotated[
        SegmenterName | None, typer.Option(help="Write words instead of characters: those that it finds in the texts.")
    ] = None,
    user_dictionary: Annotated[
        Path | None, typer.Option(help="More words for the segmenter: `word`, `word count` or `word count tag` a line.")
    ] = None,
    hmm: Annotated[bool, typer.Option(help="Let jieba find words that are in no dictionary.")] = True,
    json: Json = False,
) -> None:
    """Write the dictionary of characters or words: <blank> 0, <unk> 1, <sos/eos> 2, then all of them in the texts."""
    if segmenter is None and (user_dictionary is not None or not hmm):
        raise typer.BadParameter("name the segmenter, as --segmenter jieba", param_hint="--user-dictionary, --no-hmm")
    local_file(out)
    keep_inputs([data_list, non_lang_syms, user_dictionary], [out])
    from uio_pipes.prep.dictionary import characters, write_table
    from uio_pipes.prep.reading.texts import Texts
    from uio_pipes.tokenizers import JiebaSegmenter

    words = JiebaSegmenter(user_dictionary, hmm) if segmenter else None
    texts = Texts(data_list, data_type.value if data_type else None)
    with _explained(texts):
        count = write_table(out, characters(texts, str(non_lang_syms) if non_lang_syms else None, words))
    _say(json, str(out), count, texts.bad)


def spm(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="Folder for spm.model and lang_char.txt.")],
    vocab_size: Annotated[int, typer.Option(min=4, help="Pieces, the three symbols included.")],
    model: Annotated[Model, typer.Option(help="Kind of the model.")] = Model.bpe,
    data_type: Type = None,
    json: Json = False,
) -> None:
    """Train a SentencePiece model whose labels are those of the lang_char.txt beside it."""
    local_file(out)
    keep_inputs([data_list], [out / "spm.model", out / "lang_char.txt"])
    from uio_pipes.prep.dictionary import write_pieces
    from uio_pipes.prep.reading.texts import Texts

    texts = Texts(data_list, data_type.value if data_type else None)
    with _explained(texts):
        count = write_pieces(out, texts, vocab_size, model.value)
    _say(json, str(out), count, texts.bad)


@contextmanager
def _explained(texts: Texts) -> Iterator[None]:
    """If nothing can be made of the texts, add to the error why some could not be read."""
    from uio_pipes.prep.dictionary import DictionaryProblem

    try:
        yield
    except DictionaryProblem as error:
        if not texts.bad:
            raise
        lost = f"texts that could not be read: {_lost(_reasons(texts.bad))}; the first: {texts.bad[0].detail}"
        raise DictionaryProblem(f"{error}; {lost}") from error


def _reasons(bad: list[Bad]) -> dict[str, int]:
    return dict(sorted(Counter(one.reason for one in bad).items()))


def _lost(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())


def _say(json: bool, out: str, tokens: int, bad: list[Bad]) -> None:
    reasons = _reasons(bad)
    if json:
        failed = [asdict(one) for one in bad]
        print_json({"out": out, "tokens": tokens, "failures": len(bad), "reasons": reasons, "failed": failed})
    else:
        lost = f"; texts that could not be read: {_lost(reasons)}" if bad else ""
        typer.echo(f"{out}: {counted(tokens, 'token')}{lost}")
        show_problems([one.detail for one in bad])
    verdict(not bad)
