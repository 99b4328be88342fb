"""``from_corpus``: published corpora by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from uio_pipes.base.checks import nearest, require
from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.base.modules import module_at
from uio_pipes.base.urls import AnyPath
from uio_pipes.io.access import CACHE_SIZE, Access, AccessOptions
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.corpora import annotated, archives, columns, manifests, transcripts
from uio_pipes.sources.corpora.card import Corpus
from uio_pipes.sources.corpora.finding import There, Wanted, find

_NAME = "from_corpus"
CORPORA: Mapping[str, Corpus] = {
    card.name: card
    for card in sorted(
        (*transcripts.CARDS, *columns.CARDS, *archives.CARDS, *manifests.CARDS, *annotated.CARDS),
        key=lambda card: card.name,
    )
}


def from_corpus(
    corpus: str | Corpus,
    folder: AnyPath,
    *,
    part: str | Sequence[str] | None = None,
    fields: Mapping[str, str] | None = None,
    shuffle: bool = False,
    stream: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: AnyPath | None = None,
    cache_size: int | str = CACHE_SIZE,
    resampled: bool = False,
    tolerance: float | None = None,
    longer: Literal["fail", "trim"] = "fail",
    **options: str | Sequence[str],
) -> Pipeline:
    """Start a pipeline from a published corpus, as it was downloaded or extracted.

    Its card says how its parts are read; ``uio corpora NAME`` prints it, and ``uio corpora`` lists all. Utterances have
    ``key``, ``wav`` and, as far as the corpus tells them, ``txt``, ``speaker``, ``lang``, ``start``, ``end`` and
    ``duration``. The folder is looked at when the pipeline is described, for its layout and its parts.

    Args:
        corpus: its name, as "librispeech", or a card of your own: a :class:`Corpus`, or the file that defines it with
            its name there, "cards.py:mine".
        folder: path or URL of the folder that the corpus is in.
        part: the part(s) to read, as "train-clean-100". Default: None, all parts for training that are there.
        fields: further fields, or others than the card's, each an expression over the corpus's own columns:
            ``{"gender": "gender"}``. Default: None, those of the card.
        shuffle: whether to read utterances, or shards, in another order in each epoch. Default: False.
        stream: for tables: archives are read in their own order (True), or rows in any order (False), as for
            :func:`from_table`. Default: None, by what the archives allow.
        storage_options: how files are reached, as :class:`AccessOptions` says. Default: None.
        cache: the same. Default: None.
        cache_size: the same. Default: "100GB".
        resampled: whether utterances, or shards, are drawn with replacement: the same. Default: False.
        tolerance: seconds by which lengths may be wrong: the same. Default: None, as usual.
        longer: what is done with audio that is longer: the same. Default: "fail".
        options: the corpus's own choices, such as ``lang="th"`` or ``mic="mix"``; several in a list. Default: as the
            card says, of languages all that are there.

    Raises:
        PipelineError: there is no such corpus, part or option.
        ListError: nothing of it is in the folder, or not that part.
    """
    access: AccessOptions = {"storage_options": storage_options, "cache": cache, "cache_size": cache_size}
    access |= {"resampled": resampled, "tolerance": tolerance, "longer": longer}
    given = options if part is None else {"part": part, **options}
    wanted = {key: _several(key, value) for key, value in given.items()}
    there = locate(corpus, folder, wanted, Access.of(_NAME, **access))
    return reading(card_of(corpus), there, fields, shuffle=shuffle, stream=stream, **access)


def card_of(name: str | Corpus) -> Corpus:
    """Return the card of a corpus. Raises: PipelineError, naming the corpora that there are; ListError for a file
    without the card."""
    if isinstance(name, Corpus):
        return name
    require(
        isinstance(name, str), _NAME, "corpus must be the name of one, or a uio.Corpus", name, "as in 'librispeech'"
    )
    file, _, own = name.rpartition(":")
    if file:
        card = getattr(module := module_at(file), own, None)
        if not isinstance(card, Corpus):
            near = nearest(own, [name for name in vars(module) if name[0] != "_"])
            hint = f"did you mean {near}?" if near else f"write class {own}(uio.Format), or {own} = uio.Corpus(…)"
            raise ListError(f"{file} has no format or card {own}: {hint}")
        return card
    if name not in CORPORA:
        near = nearest(name.lower(), CORPORA)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(CORPORA)}."
        raise PipelineError(f"{_NAME}: there is no card for {name!r}; {hint} A card of your own is uio.Corpus(…)")
    return CORPORA[name]


def locate(name: str | Corpus, folder: AnyPath, wanted: Wanted, access: Access) -> There:
    """Return the existing files of the wanted part. Raises: PipelineError, ListError."""
    ok = isinstance(folder, (str, os.PathLike)) and bool(os.fspath(folder))
    require(ok, _NAME, "folder must be that of the corpus", folder, "name a folder")
    return find(card_of(name), os.fspath(folder), wanted, access)


def reading(card: Corpus, there: There, fields: Mapping[str, str] | None, **options: Any) -> Pipeline:
    """Return the pipeline for the existing files."""
    arguments = there.arguments(card.fields)
    merged = {**arguments.pop("fields"), **(fields or {})}
    takes = inspect.signature(there.layout.read).parameters
    given = {key: value for key, value in options.items() if key in takes or value is not None}
    if "stream" in given and "stream" not in takes:
        what = there.layout.read.__name__.removeprefix("from_")
        rule = "stream must be None where no table is joined to archives"
        require(False, _NAME, rule, given["stream"], f"remove it: {card.name} is stored there as {what}")
    return there.layout.read(**arguments, **({"fields": merged} if merged else {}), **given)


def _several(name: str, value: str | Sequence[str]) -> Sequence[str]:
    values = [value] if isinstance(value, str) else value
    ok = isinstance(values, Sequence) and bool(values) and all(isinstance(one, str) and one for one in values)
    require(ok, _NAME, f"{name} must be a name, or several in a list", value, "omit it for the default")
    return values
