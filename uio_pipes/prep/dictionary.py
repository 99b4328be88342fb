"""The dictionary: ``<blank> 0``, ``<unk> 1``, ``<sos/eos> 2``, then characters, or the pieces of a SentencePiece model.

Written to a folder: ``lang_char.txt`` (``token id`` a line, WeNet's units file), and with pieces ``spm.model``. The
model's own labels are those of ``lang_char.txt``: the three symbols are trained into it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from uio_pipes.errors import UioError
from uio_pipes.prep.files import write_bytes, write_lines

__all__ = ["SPECIAL", "DictionaryProblem", "write_characters", "write_pieces"]

SPECIAL = ("<blank>", "<unk>", "<sos/eos>")
SENTENCES = 10_000_000  # that SentencePiece looks at, drawn at random if there are more


class DictionaryProblem(UioError):
    """No dictionary can be made of these texts; the message says why."""


def write_characters(folder: Path, texts: Iterable[str]) -> int:
    """Every character of ``texts`` but blanks, in Unicode's order; returns how many tokens there are."""
    characters: set[str] = set()
    for text in texts:
        characters.update(text)
    found = sorted(character for character in characters if not character.isspace())
    if not found:
        raise DictionaryProblem("the texts are empty: no dictionary can be made of them")
    return _write(folder, [*SPECIAL, *found], None)


def write_pieces(folder: Path, texts: Iterable[str], size: int) -> int:
    """A byte-pair model of ``size`` pieces, the three symbols included; returns how many tokens there are.

    Raises: DictionaryProblem if the texts do not allow for so many or so few.
    """
    model = io.BytesIO()
    blank, unk, sos_eos = SPECIAL
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            add_dummy_prefix=False,  # Mandarin has no blanks: pieces would come with and without one
            input_sentence_size=SENTENCES,
            shuffle_input_sentence=True,
            pad_id=0, pad_piece=blank, unk_id=1, unk_piece=unk, bos_id=2, bos_piece=sos_eos, eos_id=-1,
            minloglevel=2,
        )  # fmt: skip
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).rpartition("]")[2].strip() or str(error)
        raise DictionaryProblem(f"no model of {size} pieces can be trained on these texts: {reason}") from error
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return _write(folder, [pieces.id_to_piece(label) for label in range(len(pieces))], model.getvalue())


def _write(folder: Path, tokens: Sequence[str], model: bytes | None) -> int:
    """The list goes first and comes last: with it, the dictionary is complete and of one kind."""
    table, pieces = folder / "lang_char.txt", folder / "spm.model"
    table.unlink(missing_ok=True)
    pieces.unlink(missing_ok=True)
    if model is not None:
        write_bytes(pieces, model)
    write_lines(table, (f"{token} {label}" for label, token in enumerate(tokens)))
    return len(tokens)
