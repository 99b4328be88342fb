"""``from_config``: a mix of sources that a YAML file describes."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, get_args

import uio_pipes.tokenizers as tokenizers
from uio_pipes.base.checks import in_words, is_number, is_weight, nearest, require
from uio_pipes.base.errors import DataError, ListError, PipelineError
from uio_pipes.base.json_text import parse_yaml, place_of
from uio_pipes.base.urls import AnyPath, is_named
from uio_pipes.core.schedule import by_step, each_value
from uio_pipes.io.access import Access, AccessOptions, Unpack, takes_access
from uio_pipes.io.opening import open_binary
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.conversations import from_conversations
from uio_pipes.sources.corpora.source import from_corpus
from uio_pipes.sources.kaldi.source import from_kaldi
from uio_pipes.sources.lhotse.shar import from_lhotse_shar
from uio_pipes.sources.lhotse.source import from_lhotse_cuts
from uio_pipes.sources.lists import from_raw_list, from_shard_list
from uio_pipes.sources.mixing import mix, tempered
from uio_pipes.sources.nemo.source import from_nemo
from uio_pipes.sources.parquet.source import from_parquet
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.sources.table.source import from_moshi, from_table
from uio_pipes.sources.tar_index import from_tar_index
from uio_pipes.sources.text import from_jsonl, from_text
from uio_pipes.sources.touchdataset.source import from_indexed
from uio_pipes.stages.order.mix_node import Stop

GROUP = "group"
_TYPES = {  # NeMo's names, and ours
    "nemo_tarred": "nemo",
    "lhotse": "lhotse_cuts",
    "txt": "text",
    "multimodal_conversation": "conversations",
    "share_gpt": "conversations",
}
NEMOS = {  # NeMo's keys, and ours
    "input_cfg": "sources",
    "reweight_temperature": "temperature",
    "manifest_filepath": "manifest",
    "tarred_audio_filepath": "tarred_audio",
    "tarred_audio_filepaths": "tarred_audio",
    "cuts_path": "paths",
    "shar_path": "source",
    "audio_placeholders": "audio_tag",
}


class ConfigEntry:
    """One mapping of the configuration, and if it is a group, those within it.

    Attributes:
        values: its values by our names.
        sources: the entries of a group; None for a source.

    Raises: PipelineError naming file and line, ListError if a file cannot be read.
    """

    def __init__(self, marked: Any, place: str, access: Access, files: tuple[str, ...], root: bool = False) -> None:
        self._marked, self._place, self._files = marked, place, files  # the last one is its own, others lead to it
        if not isinstance(marked, Mapping):
            raise PipelineError(f"{place}: expected a mapping of keys and values, not {marked!r:.80}")
        self._keys: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        for key, value in marked.items():
            name = NEMOS.get(str(key), str(key))
            if name in self.values:
                self.fail(name, f"{self._keys[name]} and {key} mean the same: keep one of them")
            self._keys[name], self.values[name] = str(key), value
        kind = self.values.setdefault("type", GROUP if root else None)
        if not isinstance(kind, str):
            self.fail("type", f"type must be the name of a source, not {kind!r}")
        self.type: str = _TYPES.get(kind, kind)
        self.sources = self._within(access) if self.type == GROUP else None

    def _within(self, access: Access) -> list[ConfigEntry]:
        sources, files, place = self.values.get("sources"), self._files, self.place("sources")
        if isinstance(sources, str):
            if sources in files:
                self.fail("sources", f"{sources} is within itself")
            sources, files, place = read(sources, access), (*files, sources), sources
        if not isinstance(sources, Sequence) or not sources or isinstance(sources, str):
            self.fail("sources", f"a group needs its sources, a list, not {sources!r:.80}")
        lines = getattr(sources, "lines", None)
        places = (
            [f"{files[-1]}, line {line}" for line in lines] if lines else [f"{place}[{i}]" for i in range(len(sources))]
        )
        return [ConfigEntry(one, at, access, files) for one, at in zip(sources, places, strict=True)]

    def place(self, key: str) -> str:
        """Return the place of a key for messages: ``data.yaml, line 7``."""
        if hasattr(self._marked, "lines"):
            return place_of(self._marked, self._keys.get(key, key), self._files[-1])
        return f"{self._place}.{self._keys.get(key, key)}"

    def word(self, key: str) -> str:
        """Return a key as it is written in the file, perhaps under NeMo's name."""
        return self._keys.get(key, key)

    def fail(self, key: str, message: str) -> NoReturn:
        raise PipelineError(f"{self.place(key)}: {message}")

    def fail_unknown(self, key: str, known: Iterable[str], what: str) -> NoReturn:
        """Raises: PipelineError for a key that is not ``known``; ``what`` has such keys."""
        names = sorted(known)
        near = nearest(key, names)
        self.fail(
            key if key in self.values else "type",
            f"{what} has no {self.word(key)!r}" + (f"; did you mean {near!r}?" if near else f": {', '.join(names)}"),
        )

    def levels(self) -> int:
        """Return the number of levels of groups from here on."""
        return 0 if self.sources is None else 1 + max(entry.levels() for entry in self.sources)

    def leaves(self) -> Iterator[ConfigEntry]:
        """Yield the sources within, at all levels."""
        for one in self.sources or ():
            yield from [one] if one.sources is None else one.leaves()

    def items(self, key: str) -> Iterator[tuple[str, Any]]:
        """Yield the items of a list with their places."""
        items = self.values.get(key, [])
        if not isinstance(items, Sequence) or isinstance(items, str):
            self.fail(key, f"{key} must be a list, not {items!r:.80}")
        lines = getattr(items, "lines", None)
        for number, item in enumerate(items):
            yield f"{self._files[-1]}, line {lines[number]}" if lines else f"{self.place(key)}[{number}]", item


def read(path: str, access: Access) -> Any:
    """Return the contents of a YAML file. Raises: ListError, PipelineError."""
    try:
        with open_binary(path, access) as file:
            return parse_yaml(file.read(), path)
    except DataError as error:
        raise ListError(f"cannot read the configuration {path}: {error.message}") from error


TYPES: dict[str, Callable[..., Pipeline]] = {
    start.__name__.removeprefix("from_"): start
    for start in (
        from_conversations,
        from_corpus,
        from_indexed,
        from_jsonl,
        from_kaldi,
        from_lhotse_cuts,
        from_lhotse_shar,
        from_moshi,
        from_nemo,
        from_parquet,
        from_raw_list,
        from_shard_list,
        from_table,
        from_tar_index,
        from_text,
    )
}
_SIGNATURES = {name: inspect.signature(start).parameters for name, start in TYPES.items()}
_PARAMETERS = {
    name: {key: parameter for key, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD}
    for name, parameters in _SIGNATURES.items()
}
_OPEN = {name for name, parameters in _SIGNATURES.items() if len(parameters) > len(_PARAMETERS[name])}  # to more keys
# A group hands options down, not what names data; ``text`` is a field, a member or a table, each in another source.
_OPTIONS = {p.name for parameters in _PARAMETERS.values() for p in parameters.values() if p.kind is p.KEYWORD_ONLY}
_HANDED = frozenset(["stop", *_OPTIONS - {"text"}])
_COMMON = frozenset(["type", "name", "weight", "tags", "apply"])
_STAGES = frozenset(name for name, value in vars(Pipeline).items() if hasattr(value, "__wrapped__"))
_TOKENIZERS = {name: getattr(tokenizers, name) for name in tokenizers.__all__ if re.fullmatch(r".+Tokenizer", name)}


class Handed(NamedTuple):
    """A value that a group passes down, and its place in the file."""

    value: Any
    place: str


class MixFile:
    """A YAML file that describes a mix of sources."""

    sentence = "NeMo `input_cfg`: a YAML file that lists several manifests"

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not is_named(seen.path, (".yaml", ".yml")) or not seen.lines or b"\0" in seen.head:
            return None
        if not re.search(rb"(?m)^(?:sources:|input_cfg:|- )", seen.head):
            what = "is a configuration, but has no sources: uio.wenet_dataset takes that of a trainer"
            raise ListError(f"{seen.path} {what}")
        return Found("mix of sources", from_config, (seen.path,))


@takes_access
def from_config(
    config: AnyPath | Mapping[str, Any],
    **access: Unpack[AccessOptions],
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
        **access: how this file is reached, and each of its sources that says nothing else: :class:`AccessOptions`.

    Raises:
        PipelineError: an entry breaks a rule; the message names file, line and key.
        ListError: the file cannot be read.
    """
    ok = isinstance(config, (str, os.PathLike, Mapping)) and bool(config)
    require(ok, "from_config", "config must be the path of a YAML file, or a dict", config, "name a file")
    reached = Access.of("from_config", **access)
    name = "config" if isinstance(config, Mapping) else os.fspath(config)
    content = config if isinstance(config, Mapping) else read(name, reached)
    content = {"sources": content} if isinstance(content, list) else content
    root = ConfigEntry(content, name, reached, (name,), root=True)
    for key in {"name", "weight"} & root.values.keys():
        root.fail(key, f"the whole file has no {key!r}, only the entries of a group have: leave it out")
    handed = {key: Handed(value, name) for key, value in {"stop": "all", **access}.items() if value is not None}
    temperature, levels = root.values.pop("temperature", 1.0), root.levels()  # one for each level, the outermost first
    each = temperature if isinstance(temperature, list) else [temperature] * levels
    if len(each) != levels or not all(is_number(t) and t >= 0 for t in each):
        root.fail("temperature", f"temperature must be a number, 0 or more, or {levels} of them, not {temperature!r}")
    return _pipeline(root, handed, {}, each)


def _pipeline(
    entry: ConfigEntry, handed: Mapping[str, Handed], tags: Mapping[str, Any], temperatures: list[float]
) -> Pipeline:
    own = entry.values.get("tags", {})
    if not isinstance(own, Mapping):
        entry.fail("tags", f"tags must be values by name, not {own!r}")
    if entry.type == GROUP:
        return _group(entry, handed, {**tags, **own}, temperatures)
    if entry.type not in TYPES:
        entry.fail_unknown(entry.type, [*TYPES, GROUP], "type")
    return _source(entry, handed, {**tags, **own})


def _group(
    entry: ConfigEntry, handed: Mapping[str, Handed], tags: Mapping[str, Any], temperatures: list[float]
) -> Pipeline:
    own = {key: one for key, one in _given(entry).items() if key != "sources"}
    for key in own.keys() - _HANDED:
        if any(key in known for known in _PARAMETERS.values()):
            entry.fail(key, f"{key!r} cannot be given for all sources at once: give it to each that takes it")
        entry.fail_unknown(key, _HANDED | _COMMON, "a group")
    handed = {**handed, **own}
    assert entry.sources is not None
    names = [str(one.values.get("name", number)) for number, one in enumerate(entry.sources)]
    for number, one in enumerate(entry.sources):
        if names[number] in names[:number]:
            one.fail("name", f"two sources are named {names[number]!r}")
    weights = _weights(entry.sources, temperatures[0])
    stop = handed["stop"]
    if stop.value not in get_args(Stop):
        raise PipelineError(f"{stop.place}: stop must be one of {get_args(Stop)}, not {stop.value!r}")
    within = [_pipeline(one, handed, tags, temperatures[1:]) for one in entry.sources]
    for key in own.keys() - {"stop"}:
        if not any(key in _PARAMETERS[one.type] for one in entry.leaves()):
            entry.fail(key, f"no source in here takes {key!r}: leave it out")
    named, places = dict(zip(names, within, strict=True)), zip(names, entry.sources, strict=True)
    about = {f"source {name!r}": one.place("type") for name, one in places}
    mixed = _called(entry.place("sources"), mix, [named, weights], {"stop": stop.value}, about)
    return _applied(mixed, entry)


def _given(entry: ConfigEntry) -> dict[str, Handed]:
    return {key: Handed(value, entry.place(key)) for key, value in entry.values.items() if key not in _COMMON}


def _weights(sources: list[ConfigEntry], temperature: float) -> list[float]:
    if all("weight" not in one.values for one in sources):
        return [1.0] * len(sources)
    weights = [_made(one.place("weight"), one.values.get("weight")) for one in sources]
    for one, weight in zip(sources, weights, strict=True):
        if not all(map(is_weight, each_value(weight))):
            rule = "weight must be a number, 0 or more, or follow by_step, and all sources of a group have one"
            one.fail("weight", f"{rule}, not {one.values.get('weight')!r}")
    return [tempered(weight, temperature) for weight in weights]


def _source(entry: ConfigEntry, handed: Mapping[str, Handed], tags: Mapping[str, Any]) -> Pipeline:
    known = _PARAMETERS[entry.type]
    own = _given(entry)
    for key in own.keys() - known.keys() if entry.type not in _OPEN else ():
        if takers := [name for name, parameters in _PARAMETERS.items() if key in parameters and key not in _HANDED]:
            word = entry.word(key)
            entry.fail(key, f"the type {entry.type} has no {word!r}, which the type {in_words(takers, 'or')} takes")
        entry.fail_unknown(key, known.keys() | _COMMON, f"the type {entry.type}")
    given = {**{key: one for key, one in handed.items() if key in known}, **own}
    for key, parameter in known.items():
        if key not in given and parameter.default is parameter.empty:
            of_nemo = [theirs for theirs, ours in NEMOS.items() if ours == key]
            entry.fail("type", f"the type {entry.type} needs {in_words(map(repr, [key, *of_nemo]), 'or')}")
    arguments, about = {key: one.value for key, one in given.items()}, {f"{k} must": h.place for k, h in given.items()}
    pipeline = _called(entry.place("type"), TYPES[entry.type], [], arguments, about)
    if tags:
        pipeline = _called(entry.place("tags"), pipeline.tag, [dict(tags)], {})
    return _applied(pipeline, entry)


def _applied(pipeline: Pipeline, entry: ConfigEntry) -> Pipeline:
    """Add the stages of ``apply``: ``name``, or ``name: argument``, or ``name: {arguments by name}``."""
    for place, step in entry.items("apply"):
        if not isinstance(step, str) and (not isinstance(step, Mapping) or len(step) != 1):
            raise PipelineError(f"{place}: a stage is its name, or one name with its arguments, not {step!r:.80}")
        name, given = (step, {}) if isinstance(step, str) else next(iter(step.items()))
        if name not in _STAGES:
            near = nearest(str(name), _STAGES)
            hint = f"; did you mean {near!r}?" if near else ""
            raise PipelineError(f"{place}: there is no stage {name!r}{hint}")
        made = _made(place, given)
        pipeline = _called(place, getattr(pipeline, name), *_arguments(made))
    return pipeline


def _arguments(given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return positional arguments, and those by name."""
    return ([], dict(given)) if isinstance(given, Mapping) else ([given], {})


def _made(place: str, value: Any) -> Any:
    """Return an argument; ``{CharTokenizer: …}`` becomes that tokenizer, also within arguments by name, and
    ``{by_step: {0: …, 1000: …}}`` a value that follows the step."""
    if not isinstance(value, Mapping):
        return list(value) if isinstance(value, list) else value
    made = {name: _made(place, inner) for name, inner in value.items()}
    if len(made) != 1:
        return made
    name = str(next(iter(made)))
    if name == by_step.__name__:
        return _called(place, by_step, [{**given} if isinstance(given := made[name], Mapping) else given], {})
    if name in _TOKENIZERS:
        return _called(place, _TOKENIZERS[name], *_arguments(made[name]))
    if (near := nearest(name, _TOKENIZERS, 0.85)) is not None:
        raise PipelineError(f"{place}: there is no tokenizer {name!r}; did you mean {near!r}?")
    return made


def _called(
    place: str, function: Any, positional: Sequence[Any], by_name: Mapping[str, Any], about: Mapping[str, str] = {}
) -> Any:
    """Call ``function``; errors name ``place``, or that of the first of the words ``about`` which they contain.

    Raises: PipelineError, ListError.
    """
    try:
        return function(*positional, **by_name)
    except (TypeError, ValueError, PipelineError, ListError) as error:
        kind = ListError if isinstance(error, ListError) else PipelineError
        at = next((there for words, there in about.items() if words in str(error)), place)
        raise kind(f"{at}: {error}") from error
