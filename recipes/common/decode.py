"""Decode a part of the corpus on any number of ranks. The same command starts a decoding and continues one::

    python -m recipes.common.decode DATA EXP --split test --mode attention_rescoring
    torchrun --nproc_per_node 8 -m recipes.common.decode DATA EXP --split test --mode attention

Kill it anywhere and start it again, on other numbers of ranks and workers too: it continues after the last batch that
is on the disk, and the files are byte by byte those of an uninterrupted run (see ``partial`` and ``results``). Batches
belong to lanes, not to ranks, and each is computed by one CPU thread or one GPU, so that neither ranks nor workers
change the result.

From Python: ``decode(data, exp, "test", Search("ctc_greedy_search"), model="latest")`` returns the path of the texts.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, cast

import typer

import uio_pipes as uio
from uio_pipes.base.processes import Busy
from uio_pipes.run.lane_runner import one_thread
from uio_pipes.run.partial import Partial

from .config import Config, ConfigError
from .data_types import list_of
from .decoding import DecodeError, Decoding, OnChange
from .experiment import NotTrained, load_model
from .peers import peers
from .pipelines import source
from .results import Results, keys_of
from .search import Mode, Search, SearchError

__all__ = ["DecodeError", "decode", "decode_pipeline"]

LANES = 16  # more than ranks × workers of most decodings; a later run may still have more
MAX_FRAMES = 12_000


def decode_pipeline(config: Config, lists: str, data_type: str, max_frames: int = MAX_FRAMES) -> uio.Pipeline:
    """Batches of all utterances, unchanged, with those of similar length together; texts are not read."""
    pipeline = source(lists, data_type, shuffle=False).decode_audio().resample(config.data.sample_rate)
    return pipeline.fbank(num_mel_bins=config.model.num_mel_bins).sort(500).dynamic_batch(max_frames=max_frames).pad()


def decode(
    data: Path,
    exp: Path,
    split: str,
    search: Search | None = None,
    *,
    model: str = "average",
    data_type: str = "shard",
    num_workers: int = 0,
    max_frames: int = MAX_FRAMES,
    on_change: OnChange = "error",
) -> Path:
    """Decode DATA/split with a model of EXP ("average", "latest" or a path); return the file of ``KEY text`` lines.

    Raises: DecodeError, Busy, and what loading the model and the list raises.
    """
    search = search or Search()
    with peers() as ranks, one_thread():
        network, tokenizer, config = load_model(exp, model, ranks.device)
        if search.needs_decoder and network.decoder is None:
            raise DecodeError(f"the model of {exp} is CTC alone: use ctc_greedy_search or ctc_prefix_beam_search")
        loader = uio.Loader(
            decode_pipeline(config, list_of(data, split, data_type), data_type, max_frames),
            num_workers=num_workers,
            lanes=max(LANES, ranks.size * max(1, num_workers)),
            rank=ranks.rank,
            world_size=ranks.size,
            uneven="join",
            pin_memory=ranks.device.type == "cuda",
        )
        name = f"{split}.{search.mode}"
        results, partial = Results(exp, name, search.nbest > 1), Partial(exp / f"{name}.partial")
        job = Decoding(ranks, network, tokenizer, search, loader, keys_of(data / split), results, partial)
        job.run(on_change)
        return results.hyp


def main(
    data: Annotated[Path, typer.Argument(help="Folder that stages 0 to 3 wrote.")],
    exp: Annotated[Path, typer.Argument(help="Folder of the experiment; all ranks see it.")],
    split: Annotated[str, typer.Option(help="Part of the corpus: DATA/SPLIT.")] = "test",
    mode: Annotated[
        str, typer.Option(help="ctc_greedy_search, ctc_prefix_beam_search, attention or attention_rescoring.")
    ] = "attention_rescoring",
    beam_size: Annotated[int, typer.Option(help="Hypotheses kept; also the n of attention_rescoring.")] = 10,
    ctc_weight: Annotated[float, typer.Option(help="Weight of the CTC score in attention_rescoring.")] = 0.5,
    nbest: Annotated[int, typer.Option(help="More than 1 also writes SPLIT.MODE.nbest.")] = 1,
    model: Annotated[
        str, typer.Option(help="average, latest (checkpoint), or a path like EXP/epochs/….pt.")
    ] = "average",
    data_type: Annotated[str, typer.Option(help="raw, shard or indexed.")] = "shard",
    num_workers: Annotated[int, typer.Option(help="Processes of each rank that make features.")] = 0,
    max_frames: Annotated[int, typer.Option(help="Padded frames in a batch; no utterance may be longer.")] = MAX_FRAMES,
    on_change: Annotated[str, typer.Option(help="error or restart, if partial results do not fit.")] = "error",
) -> None:
    """Decode a part of the corpus; continue where an earlier run was interrupted."""
    logging.basicConfig(format="%(message)s")
    try:
        if on_change not in ("error", "restart"):
            raise DecodeError(f"--on-change must be error or restart, not {on_change!r}")
        search = Search(cast("Mode", mode), beam_size, ctc_weight, nbest)
        decode(
            data,
            exp,
            split,
            search,
            model=model,
            data_type=data_type,
            num_workers=num_workers,
            max_frames=max_frames,
            on_change=cast("OnChange", on_change),
        )
    except (DecodeError, Busy, ConfigError, NotTrained, SearchError, FileNotFoundError, uio.UioError) as error:
        typer.secho(f"rank {os.environ.get('RANK', '0')}: {error}", fg="red", err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
