"""``from_config``: a mix of sources that a YAML file describes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

import uio_pipes.tokenizers as tokenizers
from uio_pipes.base.checks import is_number, require
from uio_pipes.base.errors import ListError, PipelineError
from uio_pipes.io.access import Access
from uio_pipes.pipeline import Pipeline
from uio_pipes.stages.mix_node import Stop
from uio_pipes.starts.config_entry import GROUP, Entry, read
from uio_pipes.starts.lists import from_raw_list, from_shard_list
from uio_pipes.starts.mixing import mix
from uio_pipes.starts.nemo import from_nemo
from uio_pipes.starts.others import from_lhotse_cuts, from_lhotse_shar
from uio_pipes.starts.parquet import from_parquet
from uio_pipes.starts.records import from_indexed, from_kaldi, from_tar_index
from uio_pipes.starts.text import from_jsonl, from_text

TYPES: dict[str, Callable[..., Pipeline]] = {
    start.__name__.removeprefix("from_"): start
    for start in (
        from_indexed,
        from_jsonl,
        from_kaldi,
        from_lhotse_cuts,
        from_lhotse_shar,
        from_nemo,
        from_parquet,
        from_raw_list,
        from_shard_list,
        from_tar_index,
        from_text,
    )
}
_PARAMETERS = {name: frozenset(inspect.signature(start).parameters) for name, start in TYPES.items()}
_HANDED = frozenset(["stop"]).union(*_PARAMETERS.values())  # a group hands these down to its sources
_COMMON = frozenset(["type", "name", "weight", "tags", "apply"])
_STAGES = frozenset(name for name, value in vars(Pipeline).items() if hasattr(value, "__wrapped__"))
_TOKENIZERS = {name: getattr(tokenizers, name) for name in tokenizers.__all__ if name.endswith("Tokenizer")}


def from_config(
    config: str | os.PathLike[str] | Mapping[str, Any], *, storage_options: Mapping[str, Any] | None = None
) -> Pipeline:
    """Start a pipeline from a mix of sources that a YAML file describes.

    The file has ``sources``, a list. Each has a ``type``, the name of a function without ``from_`` (``shard_list``,
    ``raw_list``, …), and that function's arguments; and, if wanted, ``name``, ``weight``, ``tags`` (fields of all
    its utterances, see ``.tag``) and ``apply`` (a list of stages behind it). The type ``group`` has ``sources`` of
    its own, a list or the path of another such file, which are mixed first: weights multiply. ``stop`` (as for
    :func:`mix`) and arguments such as ``shuffle`` hold for everything within their group, or within the file, that
    does not say otherwise. ``temperature`` t, a number or one for each level of groups, makes each weight w into
    w^t. The names that NeMo's ``input_cfg`` has for these are known, too.

    Args:
        config: path or URL of the YAML file, or what it holds, as a dict. Relative paths in it start at the working
            directory.
        storage_options: options for fsspec's file systems, as for :func:`list_files`: for this file, and for each of
            its sources that has none of its own. Default: None.

    Raises:
        PipelineError: an entry breaks a rule; the message names file, line and key.
        ListError: the file cannot be read.
    """
    ok = isinstance(config, (str, os.PathLike, Mapping)) and bool(config)
    require(ok, "from_config", "config must be the path of a YAML file, or a dict", config, "name a file")
    access = Access.of("from_config", storage_options)
    name = "config" if isinstance(config, Mapping) else os.fspath(config)
    content = config if isinstance(config, Mapping) else read(name, access)
    content = {"sources": content} if isinstance(content, list) else content
    root = Entry(content, name, access, (name,), root=True)
    handed = {} if storage_options is None else {"storage_options": storage_options}
    return _pipeline(root, handed, {}, _temperatures(root))


def _temperatures(root: Entry) -> list[float]:
    """Return the temperature of each level, the outermost first."""
    given, levels = root.values.pop("temperature", 1.0), root.levels()
    each = given if isinstance(given, list) else [given] * levels
    if len(each) != levels or not all(is_number(t) and t >= 0 for t in each):
        root.fail("temperature", f"temperature must be a number, 0 or more, or {levels} of them, not {given!r}")
    return each


def _pipeline(entry: Entry, handed: Mapping[str, Any], tags: Mapping[str, Any], temperatures: list[float]) -> Pipeline:
    own = entry.values.get("tags", {})
    if not isinstance(own, Mapping):
        entry.fail("tags", f"tags must be values by name, not {own!r}")
    if entry.type == GROUP:
        return _group(entry, handed, {**tags, **own}, temperatures)
    if entry.type not in TYPES:
        entry.fail_unknown(entry.type, [*TYPES, GROUP], "type")
    return _source(entry, handed, {**tags, **own})


def _group(entry: Entry, handed: Mapping[str, Any], tags: Mapping[str, Any], temperatures: list[float]) -> Pipeline:
    own = {key: value for key, value in entry.values.items() if key not in _COMMON and key != "sources"}
    for key in own.keys() - _HANDED:
        entry.fail_unknown(key, _HANDED | _COMMON, "a group")
    handed = {**handed, **own}
    assert entry.sources is not None
    names = [str(one.values.get("name", number)) for number, one in enumerate(entry.sources)]
    for number, one in enumerate(entry.sources):
        if names[number] in names[:number]:
            one.fail("name", f"two sources are named {names[number]!r}")
    weights = _weights(entry.sources, temperatures[0])
    stop = handed.get("stop", "all")
    if stop not in get_args(Stop):
        entry.fail("stop", f"stop must be one of {get_args(Stop)}, not {stop!r}")
    within = [_pipeline(one, handed, tags, temperatures[1:]) for one in entry.sources]
    mixed = _called(entry.place("sources"), mix, [dict(zip(names, within, strict=True)), weights], {"stop": stop})
    return _applied(mixed, entry)


def _weights(sources: list[Entry], temperature: float) -> list[float]:
    if all("weight" not in one.values for one in sources):
        return [1.0] * len(sources)
    weights: list[float] = []
    for one in sources:
        weight = one.values.get("weight")
        if not isinstance(weight, (int, float)) or not is_number(weight) or weight <= 0:
            one.fail("weight", f"weight must be a number above 0, and all sources of a group have one, not {weight!r}")
        weights.append(weight if temperature == 1 else weight**temperature)
    return weights


def _source(entry: Entry, handed: Mapping[str, Any], tags: Mapping[str, Any]) -> Pipeline:
    known = _PARAMETERS[entry.type]
    own = {key: value for key, value in entry.values.items() if key not in _COMMON}
    for key in own.keys() - known:
        entry.fail_unknown(key, known | _COMMON, f"the type {entry.type}")
    arguments = {**{key: value for key, value in handed.items() if key in known}, **own}
    pipeline = _called(entry.place("type"), TYPES[entry.type], [], arguments)
    if tags:
        pipeline = _called(entry.place("tags"), pipeline.tag, [dict(tags)], {})
    return _applied(pipeline, entry)


def _applied(pipeline: Pipeline, entry: Entry) -> Pipeline:
    """Add the stages of ``apply``: ``name``, or ``name: argument``, or ``name: {arguments by name}``."""
    for place, step in entry.items("apply"):
        if not isinstance(step, str) and (not isinstance(step, Mapping) or len(step) != 1):
            raise PipelineError(f"{place}: a stage is its name, or one name with its arguments, not {step!r:.80}")
        name, given = (step, {}) if isinstance(step, str) else next(iter(step.items()))
        if name not in _STAGES:
            near = get_close_matches(str(name), _STAGES, 1)
            raise PipelineError(
                f"{place}: there is no stage {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        made = _made(place, given)
        pipeline = _called(place, getattr(pipeline, name), *_arguments(made))
    return pipeline


def _arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return positional arguments, and those by name."""
    return ([], dict(given)) if isinstance(given, Mapping) else ([given], {})


def _made(place: str, value: Any) -> Any:
    """Return an argument; ``{CharTokenizer: …}`` becomes that tokenizer, also within arguments by name."""
    if not isinstance(value, Mapping):
        return list(value) if isinstance(value, list) else value
    made = {name: _made(place, inner) for name, inner in value.items()}
    if len(made) != 1 or (name := next(iter(made))) not in _TOKENIZERS:
        return made
    return _called(place, _TOKENIZERS[name], *_arguments(made[name]))


def _called(place: str, function: Any, positional: Sequence[Any], by_name: Mapping[str, Any]) -> Any:
    """Call ``function``; errors name the place. Raises: PipelineError."""
    try:
        return function(*positional, **by_name)
    except ListError as error:
        raise ListError(f"{place}: {error}") from error
    except (TypeError, ValueError, PipelineError) as error:
        raise PipelineError(f"{place}: {error}") from error
