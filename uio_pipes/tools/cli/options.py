"""Options that several commands have, and the pipeline that a command line names: ``module:attribute``,
``file.py:attribute``, or a list and a YAML."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from difflib import get_close_matches
from inspect import signature
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from uio_pipes.tools.cli.common import read_yaml

if TYPE_CHECKING:
    from uio_pipes.pipeline import Pipeline
    from uio_pipes.run.encode import FrozenModel

Named = Annotated[
    str | None,
    typer.Argument(
        metavar="[PIPELINE]",
        help="module:attribute or path/file.py:attribute, a Pipeline or a function that returns one. The file is run.",
        show_default=False,
    ),
]
RunArgument = Annotated[str, typer.Argument(help="The run's pipeline: train.py:pipeline or package.module:pipeline.")]
ListArgument = Annotated[
    str, typer.Argument(metavar="LIST", help="A list, or any data that `uio inspect` knows. Path or URL.")
]
DataTypeOption = Annotated[str, typer.Option("--data-type", help="With --data: raw, shard or indexed.")]
Data = Annotated[str | None, typer.Option("--data", help="Instead of PIPELINE: a data list, with --conf.")]
Conf = Annotated[str | None, typer.Option("--conf", help="WeNet's train.yaml (its dataset_conf) for --data.")]
Symbols = Annotated[
    str | None, typer.Option("--symbols", help="A dictionary (lang_char.txt) for filters by the number of labels.")
]
RanksOption = Annotated[
    int | None, typer.Option(min=1, help="Ranks that go on from the state; those that saved it if not given.")
]
Seed = Annotated[int, typer.Option(help="The loader's seed.")]
Draw = Annotated[str | None, typer.Option(help="Write it as a page with charts: a .html file.")]
Json = Annotated[bool, typer.Option("--json", help="Report as one JSON object on stdout.")]
AllowPipes = Annotated[bool, typer.Option("--allow-pipes", help="Run a Kaldi folder's commands.")]
Compress = Annotated[
    bool, typer.Option("--compress", help="Tars as .tar.zst: small zstd frames, each with a checksum of its content.")
]
Fields = Annotated[
    str | None,
    typer.Option(
        "--fields", metavar="OURS=THEIRS,…", help="Names or expressions of fields: txt=sentence,wav=clips/{path}."
    ),
]
GroupingOption = Annotated[str, typer.Option(help="How names are cut into key and suffix: wenet or webdataset.")]
PROCESSES = os.cpu_count() or 1
Processes = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes.")]
ProcessesOrAll = Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0: one for each core.")]
Rate = Annotated[
    int | None, typer.Option(min=1000, max=384_000, help="Hz, 1000 to 384000; audio of another rate is resampled.")
]


def field_names(text: str | None) -> dict[str, str] | None:
    """Return the names that ``--fields`` gives, by ours. Raises: typer.BadParameter."""
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in re.split(r",(?=\s*(?:[\w.-]+\s*=|$))", text)]
    if not all(ours.strip() and theirs.strip() for ours, _, theirs in pairs):
        example = "as txt=sentence,wav=clips/{path}"
        raise typer.BadParameter(f"{text!r} must be names or expressions by ours, {example}", param_hint="--fields")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def load(named: str | None, data_type: str, data: str | None, conf: str | None, symbols: str | None) -> Pipeline:
    """Return the pipeline that the arguments name. Raises: typer.BadParameter."""
    if (named is None) == (data is None):
        raise typer.BadParameter("name a pipeline (train.py:pipeline), or give --data LIST with --conf train.yaml")
    if data is not None:
        return _wenet(data_type, data, conf, symbols)
    assert named is not None
    if conf is not None or symbols is not None:
        raise typer.BadParameter("--conf and --symbols belong to --data; a pipeline of your own has its own stages")
    return load_named(named)


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


def names_pipeline(text: str) -> bool:
    """True if this names a pipeline as in train.py:pipeline, and no data."""
    where, _, attribute = text.rpartition(":")
    return bool(where) and attribute.isidentifier()


def _split(named: str) -> tuple[str, str]:
    where, colon, attribute = named.rpartition(":")
    if not colon or not attribute.isidentifier():
        raise typer.BadParameter(f"{named!r} names no pipeline: write train.py:pipeline or package.module:pipeline")
    return where, attribute


def _value(named: str, kind: type = object) -> Any:
    """Return what a text names; ``kind``: the class of what to name instead, if it is not there."""
    where, attribute = _split(named)
    module = _file(where) if where.endswith(".py") else _module(where)
    if not hasattr(module, attribute):
        names = [
            n for n, v in vars(module).items() if not n.startswith("_") and (isinstance(v, kind) or _own(v, module))
        ]
        near = get_close_matches(attribute, names, 1) or names[:5]
        raise typer.BadParameter(
            f"{where} has no {attribute!r}" + (f"; did you mean {', '.join(near)}?" if near else "")
        )
    return getattr(module, attribute)


def _own(value: object, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def _file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise typer.BadParameter(f"no such file: {path}")
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that functions in it can be pickled
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise typer.BadParameter(f"running {path} failed: {type(error).__name__}: {error}") from error
    return module


def _module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise typer.BadParameter(f"there is no module {error.name!r} here; a file is named with its .py") from error
    except Exception as error:
        raise typer.BadParameter(f"importing {name} failed: {type(error).__name__}: {error}") from error


# A data list and WeNet's YAML


def _wenet(data_type: str, data: str, conf: str | None, symbols: str | None) -> Pipeline:
    from uio_pipes.tokenizers import CharTokenizer
    from uio_pipes.wenet import STEPS, apply_steps, read_conf, wenet_dataset

    read = {} if conf is None else read_yaml(conf)
    block = read.get("dataset_conf", read) or {}
    tokenizer = None if symbols is None else CharTokenizer(symbols)
    if data_type in ("raw", "shard"):
        return cast("Pipeline", wenet_dataset(data_type, data, tokenizer, block).pipeline)
    if data_type != "indexed":
        raise typer.BadParameter(f"--data-type must be raw, shard or indexed, not {data_type!r}")

    values = read_conf(block)
    source = _indexed(data, bool(values["list_shuffle"]))
    return apply_steps(source, STEPS, values, tokenize={"tokenizer": tokenizer}).pad(pcm=True)


def _indexed(data: str, shuffle: bool) -> Pipeline:
    """Return the source for TouchDatasets, or for shards with their indexes."""
    from uio_pipes.sources.tar_index import from_tar_index
    from uio_pipes.sources.touchdataset.source import from_indexed
    from uio_pipes.tools.data.recognize import recognize

    start = from_indexed if "TouchDataset" in recognize(data).kind else from_tar_index
    return start(data, shuffle=shuffle)
