"""The dictionary: ``<blank> 0``, ``<unk> 1``, ``<sos/eos> 2``, then characters, words, or the pieces of a SentencePiece
model.

Written to a folder: ``lang_char.txt`` (``token id`` a line, WeNet's units file), and with pieces ``spm.model``. The
model's own labels are those of ``lang_char.txt``: the three symbols are trained into it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import sentencepiece

from uio_pipes.base.errors import DataError, UioError
from uio_pipes.core.lane import Lane
from uio_pipes.formats.advice import named_otherwise
from uio_pipes.io.files import write_bytes, write_lines
from uio_pipes.run.lane_runner import items_of
from uio_pipes.sources.kaldi.tables import KaldiLines, is_folder
from uio_pipes.sources.seen import GivenNames, exists
from uio_pipes.tokenizers.base import CharTokenizer, Segmenter
from uio_pipes.tools.data.common import Noting
from uio_pipes.tools.data.reading import Bad
from uio_pipes.tools.data.recognize import recognize

SPECIAL = ("<blank>", "<unk>", "<sos/eos>")
SENTENCES = 10_000_000  # used by SentencePiece; drawn at random if there are more


class DictionaryProblem(UioError):
    """No dictionary can be made of these texts; the message says why."""


class Texts:
    """The texts of data of any kind, whose ``fields`` may have other names, read as training does, but no audio; of a
    Kaldi folder those of its ``text``, whatever has audio. ``bad``: unreadable ones."""

    def __init__(self, url: str, fields: GivenNames = None) -> None:
        self.url, self.fields, self.bad = url.rstrip("/") or "/", fields, list[Bad]()

    def __iter__(self) -> Iterator[str]:
        ledger, self.bad = Noting(), []
        if not self.fields and is_folder(self.url) and exists(f"{self.url}/text"):
            table = KaldiLines([f"{self.url}/text"], 0)
            for number in range(len(table)):
                try:
                    yield table.value(number)
                except DataError as error:
                    self.bad.append(Bad.of(error))
            return
        for sample in items_of(recognize(self.url, fields=self.fields).pipeline.build(Lane(ledger))):
            if isinstance(txt := sample.get("txt"), str):
                yield txt
            else:
                lacking = f"{sample.url}: the utterance has no txt: {named_otherwise('txt', sample.fields)}"
                self.bad.append(Bad(sample.key, "missing_text", lacking))
        self.bad += map(Bad.of, ledger.take())


def characters(
    texts: Iterable[str], non_lang_syms: str | Iterable[str] | None = None, segmenter: Segmenter | None = None
) -> list[str]:
    """Return the tokens of a dictionary: the three symbols, then those of ``CharTokenizer`` in Unicode order.
    ``non_lang_syms``: the path or list of symbols that are kept whole, like ``{NOISE}``; ``segmenter``: what finds
    words, which are then the tokens."""
    tokenizer = CharTokenizer({"<unk>": 0}, non_lang_syms, segmenter=segmenter)
    found: set[str] = set()
    for text in texts:
        found.update(tokenizer.tokenize(text)[0])
    tokens = sorted(token for token in found if not token.isspace() and token not in SPECIAL)
    if not tokens:
        raise DictionaryProblem("the texts are empty: no dictionary can be made of them")
    return [*SPECIAL, *tokens]


def write_pieces(
    folder: Path, texts: Iterable[str], size: int, model: Literal["bpe", "unigram"] = "bpe", dummy_prefix: bool = False
) -> int:
    """Train a model of ``size`` pieces, the three symbols included; return the number of tokens.

    ``dummy_prefix``: put a blank before each text, so that its first word has the pieces that it has elsewhere. Not for
    Mandarin, which has no blanks between words: pieces would come with and without one.

    Raises: DictionaryProblem if the texts do not allow for so many or so few.
    """
    trained = io.BytesIO()
    blank, unk, sos_eos = SPECIAL
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=trained,
            model_type=model,
            vocab_size=size,
            character_coverage=1.0,
            add_dummy_prefix=dummy_prefix,
            input_sentence_size=SENTENCES,
            shuffle_input_sentence=True,
            pad_id=0, pad_piece=blank, unk_id=1, unk_piece=unk, bos_id=2, bos_piece=sos_eos, eos_id=-1,
            minloglevel=2,
        )  # fmt: skip
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).rpartition("]")[2].strip() or str(error)
        raise DictionaryProblem(f"no model of {size} pieces can be trained on these texts: {reason}") from error
    pieces = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    table = folder / "lang_char.txt"
    table.unlink(missing_ok=True)  # one that is there always fits the model
    write_bytes(folder / "spm.model", trained.getvalue())
    return write_table(table, [pieces.id_to_piece(label) for label in range(len(pieces))])


def write_table(path: Path, tokens: Sequence[str]) -> int:
    """Write ``token id`` a line; return the number of tokens."""
    write_lines(path, (f"{token} {label}" for label, token in enumerate(tokens)))
    return len(tokens)
