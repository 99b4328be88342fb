"""Options that several commands have, and the pipeline that a command line names: ``module:attribute`` or
``file.py:attribute``."""

from __future__ import annotations

import importlib
import os
import re
import sys
from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from uio_pipes.base.errors import ListError
from uio_pipes.base.modules import module_at
from uio_pipes.base.processes import cores
from uio_pipes.tools.cli.common import check_suffix, takes_fields

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline
    from uio_pipes.run.encode import FrozenModel

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="PIPELINE",
        help="module:attribute or path/file.py:attribute, a Pipeline or a function that returns one. The file is run.",
    ),
]
ListArgument = Annotated[
    str, typer.Argument(metavar="LIST", help="A list, or any data that `uio inspect` knows. Path or URL.")
]
Json = Annotated[bool, typer.Option("--json", help="Report as one JSON object on stdout.")]
AllowPipes = Annotated[
    bool, typer.Option("--allow-pipes", help="Run commands in wav.scp (`sox … |`), without a shell.")
]
Tolerance = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds by which audio may differ from what its list declares; as usual if not given."),
]
Compress = Annotated[
    bool, typer.Option("--compress", help="Tars as .tar.zst: small zstd frames, each with a checksum of its content.")
]
GroupingOption = Annotated[Literal["wenet", "webdataset"], typer.Option(help="How names are cut into key and suffix.")]
Rate = Annotated[
    int | None, typer.Option(min=1000, max=384_000, help="Hz, 1000 to 384000; audio of another rate is resampled.")
]


def _field_names(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in re.split(r",(?=\s*(?:[\w.-]+\s*=|$))", text)]
    if not all(ours.strip() and theirs.strip() for ours, _, theirs in pairs):
        raise typer.BadParameter(f"{text!r} must be names or expressions by ours, as txt=sentence,wav=clips/{{path}}")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def _page(path: str | None) -> str | None:
    check_suffix(path, ".html")
    return path


Fields = Annotated[
    dict[str, str] | None,
    typer.Option(
        "--fields",
        metavar="OURS=THEIRS,…",
        parser=_field_names,
        callback=takes_fields,
        help="Names or expressions of fields: txt=sentence,wav=clips/{path}.",
    ),
]
Processes = Annotated[
    int, typer.Option("--jobs", "-j", min=0, callback=lambda n: n or cores(), help="Processes; 0: one for each core.")
]
Page = Annotated[str | None, typer.Option(callback=_page, help="Write it as a page, too: a .html file.")]


def load_named(named: str) -> Pipeline:
    """Return the pipeline that a text such as ``train.py:pipeline`` names. Raises: typer.BadParameter."""
    from uio_pipes.pipeline import Pipeline

    value = _value(named, Pipeline)
    if callable(value):
        value = value()
    value = getattr(value, "pipeline", value)  # of a Loader, or of wenet_dataset
    if not isinstance(value, Pipeline):
        raise typer.BadParameter(f"{named} is neither a Pipeline nor a function that returns one: {value!r:.80}")
    return value


def load_model(named: str) -> FrozenModel:
    """Return the model that a text such as ``train.py:model`` names. Raises: typer.BadParameter."""
    value = _value(named)
    made = hasattr(value, "parameters") and not isinstance(value, type)  # a module, not its class
    if callable(value) and not made and all(p.default is not p.empty for p in signature(value).parameters.values()):
        value = value()
    if not callable(value):
        raise typer.BadParameter(f"{named} is neither a model nor a function that returns one: {value!r:.80}")
    return cast("FrozenModel", value)


def _value(named: str, kind: type = object) -> Any:
    """Return what a text names; ``kind``: the class of what to name instead, if it is not there."""
    where, _, attribute = named.rpartition(":")
    if not (where and attribute.isidentifier()):
        raise typer.BadParameter(f"{named!r} names no pipeline: write train.py:pipeline or package.module:pipeline")
    of_file = where.endswith(".py")
    try:
        if not of_file:
            sys.path.insert(0, os.getcwd())
        module = module_at(where) if of_file else importlib.import_module(where)
    except Exception as error:
        what = f"{'running' if of_file else 'importing'} {where} failed: {type(error).__name__}: {error}"
        if of_file and isinstance(error, ListError):
            what = str(error)
        elif not of_file and isinstance(error, ModuleNotFoundError):
            what = f"there is no module {error.name!r} here; a file is named with its .py"
        raise typer.BadParameter(what) from error
    if not hasattr(module, attribute):
        named_here = ((n, v) for n, v in vars(module).items() if not n.startswith("_"))
        names = [
            n for n, v in named_here
            if isinstance(v, kind) or (callable(v) and getattr(v, "__module__", None) == module.__name__)
        ]  # fmt: skip
        near = get_close_matches(attribute, names, 1) or names[:5]
        raise typer.BadParameter(
            f"{where} has no {attribute!r}" + (f"; did you mean {', '.join(near)}?" if near else "")
        )
    return getattr(module, attribute)
