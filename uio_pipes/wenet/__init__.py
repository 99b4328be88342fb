"""WeNet's datasets: its lists, tokenizers and ``dataset_conf`` as they are, its batches for its trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from uio_pipes.dataset import PipelineDataset
from uio_pipes.errors import PipelineError
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.list_files import list_files
from uio_pipes.stage import require
from uio_pipes.tokenizers import Tokenizer
from uio_pipes.wenet.conf import read_conf
from uio_pipes.wenet.table import LIST, STEPS, Step

__all__ = ["wenet_dataset"]


def wenet_dataset(
    data_type: str,
    data_list: Any,
    tokenizer: Tokenizer | Callable[[str], Any] | None,
    conf: Mapping[str, Any],
    partition: bool = True,
) -> PipelineDataset:
    """WeNet's dataset of a data list: what its trainer gives to ``torch.utils.data.DataLoader(dataset,
    batch_size=None, …)``, with ``set_epoch``.

    Args:
        data_type: "raw" (a list of JSON objects) or "shard" (a list of tar files).
        data_list: what :func:`list_files` takes.
        tokenizer: one of this package or of WeNet, or a function of the text; None: no labels.
        conf: the ``dataset_conf`` block of a WeNet YAML. Stages are applied in WeNet's order, with its defaults.
        partition: False gives every rank everything (validation).

    ``.pipeline`` of what is returned is the graph: ``print`` it, or run it by ``uio.Loader(dataset.pipeline)``, which
    can be stopped at any batch.

    Raises: PipelineError naming the key: unknown (with the nearest known one), or with a value of the wrong kind.
    """
    require(
        data_type in ("raw", "shard"), "wenet_dataset", "data_type must be 'raw' or 'shard'", data_type, "see above"
    )
    values = read_conf(conf)
    pipeline = _source(data_type, data_list, **{key.argument: values[key.name] for key in LIST})
    for step in STEPS:
        arguments = {key.argument: values[key.name] for key in step.keys}
        if step.stage == "tokenize":
            arguments["tokenizer"] = tokenizer
        on = step.switch is None or values[step.switch.name] == step.on
        if on and arguments.get(step.needs, step) is not None:
            pipeline = _applied(pipeline, step, arguments)
    return pipeline.pad(pcm=True).as_dataset(partition=partition)


def _source(data_type: str, data_list: Any, shuffle: bool, shuffle_size: int | None, times: int) -> Pipeline:
    """Utterances of the list: shuffled as a whole, or through a buffer; several times over."""
    whole = shuffle_size is None
    pipeline = list_files(data_list, shuffle=shuffle and whole)
    if shuffle and not whole:
        pipeline = _applied(pipeline, Step("shuffle", LIST[1:2]), {"shuffle_size": shuffle_size})
    if times != 1:
        pipeline = _applied(pipeline, Step("repeat", LIST[2:]), {"times": times})
    pipeline = pipeline.sharding_filter()
    return pipeline.load_from_raw() if data_type == "raw" else pipeline.open_files().load_from_tar()


def _applied(pipeline: Pipeline, step: Step, arguments: dict[str, Any]) -> Pipeline:
    try:
        result: Pipeline = getattr(pipeline, step.stage)(**arguments)
    except PipelineError as error:
        keys = ", ".join(key.name for key in step.keys)
        raise PipelineError(f"dataset_conf ({keys}): {error}" if keys else str(error)) from error
    return result
