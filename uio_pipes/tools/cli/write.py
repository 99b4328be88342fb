"""``uio dict``, ``uio spm`` and ``uio cmvn``: what a training needs beside its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from uio_pipes.base.urls import plural
from uio_pipes.tools.cli.common import keep_inputs, local_file, print_json, read_conf_block, show_problems, verdict
from uio_pipes.tools.cli.options import Fields, Json, ListArgument, Processes

if TYPE_CHECKING:
    from uio_pipes.tools.data.dictionary import Texts
    from uio_pipes.tools.data.reading import Bad


def cmvn(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="The file to write: WeNet's global_cmvn.")],
    conf: Annotated[
        Path | None,
        typer.Option(help="A WeNet YAML: its dataset_conf says which features. If not given, 80 bins at 16 kHz."),
    ] = None,
    fields: Fields = None,
    jobs: Processes = 0,
    json: Json = False,
) -> None:
    """Sum up features, for their global mean and variance.

    The sums have the same bits on any number of processes. If it was killed, the same command goes on.
    """
    local_file(out)
    keep_inputs([data_list, conf], [out, f"{out}.journal"])
    features = None if conf is None else read_conf_block(conf, "--conf")
    from uio_pipes.tools.data.cmvn import FBANK, compute_cmvn

    sums = compute_cmvn(data_list, out, FBANK if features is None else features, jobs, fields=fields)
    report = {"cmvn": str(out), "frames": sums.frame_num, "utterances": sums.utterances, "failures": sums.failures,
              "bins": len(sums.mean_stat)}  # fmt: skip
    if json:
        print_json(report)
    else:
        failed = f"; {plural(sums.failures, 'failure')}" if sums.failures else ""
        typer.echo(f"{out}: {plural(sums.frame_num, 'frame')} of {plural(sums.utterances, 'utterance')}{failed}")
    verdict(not sums.failures)


def dictionary(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="The file to write, as lang_char.txt.")],
    non_lang_syms: Annotated[Path | None, typer.Option(help="Symbols kept whole, one a line, like {NOISE}.")] = None,
    segmenter: Annotated[
        Literal["jieba"] | None,
        typer.Option(help="Write words instead of characters: those that it finds in the texts."),
    ] = None,
    user_dictionary: Annotated[
        Path | None, typer.Option(help="More words for the segmenter: `word`, `word count` or `word count tag` a line.")
    ] = None,
    hmm: Annotated[bool, typer.Option(help="Let jieba find words that are in no dictionary.")] = True,
    fields: Fields = None,
    json: Json = False,
) -> None:
    """Make the table of characters or words that labels need.

    It has <blank> 0, <unk> 1, <sos/eos> 2, then all of them in the texts.
    """
    if segmenter is None and (user_dictionary is not None or not hmm):
        raise typer.BadParameter("name the segmenter, as --segmenter jieba", param_hint="--user-dictionary, --no-hmm")
    local_file(out)
    keep_inputs([data_list, non_lang_syms, user_dictionary], [out])
    from uio_pipes.tokenizers import JiebaSegmenter
    from uio_pipes.tools.data.dictionary import Texts, characters, write_table

    words = JiebaSegmenter(user_dictionary, hmm) if segmenter else None
    texts = Texts(data_list, fields)
    with _explained(texts):
        count = write_table(out, characters(texts, str(non_lang_syms) if non_lang_syms else None, words))
    _say_tokens(json, str(out), count, texts.bad)


def spm(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="Folder for spm.model and lang_char.txt.")],
    vocab_size: Annotated[int, typer.Option(min=4, help="Pieces, the three symbols included.")],
    model: Annotated[Literal["bpe", "unigram"], typer.Option(help="Kind of the model.")] = "bpe",
    fields: Fields = None,
    json: Json = False,
) -> None:
    """Train a SentencePiece model, for labels of word pieces.

    Its labels are those of the lang_char.txt beside it.
    """
    local_file(out)
    keep_inputs([data_list], [out / "spm.model", out / "lang_char.txt"])
    from uio_pipes.tools.data.dictionary import Texts, write_pieces

    texts = Texts(data_list, fields)
    with _explained(texts):
        count = write_pieces(out, texts, vocab_size, model)
    _say_tokens(json, str(out), count, texts.bad)


@contextmanager
def _explained(texts: Texts) -> Iterator[None]:
    """If nothing can be made of the texts, add to the error why some could not be read."""
    from uio_pipes.tools.data.dictionary import DictionaryProblem

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


def _say_tokens(json: bool, out: str, tokens: int, bad: list[Bad]) -> None:
    reasons = _reasons(bad)
    if json:
        failed = [asdict(one) for one in bad]
        print_json({"out": out, "tokens": tokens, "failures": len(bad), "reasons": reasons, "failed": failed})
    else:
        lost = f"; texts that could not be read: {_lost(reasons)}" if bad else ""
        typer.echo(f"{out}: {plural(tokens, 'token')}{lost}")
        show_problems([one.detail for one in bad])
    verdict(not bad)
