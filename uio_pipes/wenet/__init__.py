"""WeNet's datasets: take its lists, tokenizers and ``dataset_conf``, give the batches that its trainer expects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from uio_pipes.base.checks import require
from uio_pipes.base.errors import PipelineError
from uio_pipes.pipeline import Pipeline
from uio_pipes.run.dataset import PipelineDataset
from uio_pipes.sources.lists import list_files
from uio_pipes.tokenizers import Tokenizer
from uio_pipes.wenet.conf import LIST_STEPS, STEPS, StageKeys, read_conf

__all__ = ["apply_steps", "wenet_dataset"]


def wenet_dataset(
    data_type: str,
    data_list: Any,
    tokenizer: Tokenizer | Callable[[str], Any] | None,
    conf: Mapping[str, Any],
    partition: bool = True,
) -> PipelineDataset:
    """Make WeNet's dataset from a data list; its trainer gives it to ``DataLoader(dataset, batch_size=None, …)``.

    The result's attribute ``pipeline`` is the graph: print it, or run it by ``uio.Loader(dataset.pipeline)``, which can
    be stopped and resumed at any batch.

    Args:
        data_type: "raw" (a list of JSON objects) or "shard" (a list of tar files).
        data_list: a data list, as for :func:`list_files`.
        tokenizer: a tokenizer of this package or of WeNet, or a function of the text; None for no labels, as in WeNet's
            self-supervised training: utterances then need no ``txt``.
        conf: the ``dataset_conf`` block of a WeNet YAML. Stages are applied in WeNet's order, with its defaults.
        partition: False gives every rank everything, as for validation. Default: True.

    Raises:
        PipelineError: a key is unknown (the message names the nearest known one), or has a value of the wrong kind.
    """
    require(
        data_type in ("raw", "shard"), "wenet_dataset", "data_type must be 'raw' or 'shard'", data_type, "see above"
    )
    values = read_conf(conf)
    whole = values["list_shuffle"] and values["list_shuffle_conf.shuffle_size"] is None
    pipeline = apply_steps(list_files(data_list, shuffle=whole), LIST_STEPS, values).sharding_filter()
    text = None if tokenizer is None else "txt"
    pipeline = (
        pipeline.load_from_raw(text=text) if data_type == "raw" else pipeline.open_files().load_from_tar(text=text)
    )
    told = {"tokenize": {"tokenizer": tokenizer}} | ({} if text else {"language": {"needs_text": False}})
    pipeline = apply_steps(pipeline, STEPS, values, **told)
    return pipeline.pad(pcm=True).as_dataset(partition=partition)


def apply_steps(
    pipeline: Pipeline, steps: Iterable[StageKeys], values: Mapping[str, Any], **given: dict[str, Any]
) -> Pipeline:
    """Return ``pipeline`` with the ``steps`` that the values switch on. ``given``: arguments that no key has."""
    for step in steps:
        arguments = {key.argument: values[key.name] for key in step.keys} | given.get(step.stage, {})
        on = step.switch is None or values[step.switch.name] == step.on
        if on and not (step.needs and arguments[step.needs] == step.idle):
            try:
                pipeline = getattr(pipeline, step.stage)(**arguments)
            except PipelineError as error:
                keys = ", ".join(key.name for key in step.keys)
                raise PipelineError(f"dataset_conf ({keys}): {error}" if keys else str(error)) from error
    return pipeline
