"""``uio pack`` and ``uio convert``: data written in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from uio_pipes.base.errors import PipelineError
from uio_pipes.tools.cli.common import keep_inputs, parsed, print_json, read_conf_block, verdict
from uio_pipes.tools.cli.options import AllowPipes, Compress, Fields, Json, Processes, Rate, Tolerance

if TYPE_CHECKING:
    from uio_pipes.tools.data.pack import FeatureSettings, PackSettings


def pack(
    source: Annotated[
        list[str],
        typer.Argument(
            help="Data of any kind: a list, a folder with wav.scp and text, a table, NAME:FOLDER of a corpus (uio "
            "corpora). For features, any number of feats.scp or of folders with one and text. Paths or URLs."
        ),
    ],
    out: Annotated[str, typer.Argument(help="Folder for the shards. Path or URL.")],
    list_path: Annotated[
        str, typer.Option("--list", help="The list of shards to write; OUT/shards.list if not given.")
    ] = "",
    per_shard: Annotated[int, typer.Option(min=1, help="Utterances in a shard.")] = 1000,
    resample: Rate = None,
    form: Annotated[
        Literal["as-is", "wav", "flac"],
        typer.Option("--format", help="Format of the audio; as-is: files unchanged, segments as wav."),
    ] = "as-is",
    to: Annotated[
        Literal["shards", "indexed"],
        typer.Option(help="shards: tars. indexed: folders of a TouchDataset (16-bit PCM)."),
    ] = "shards",
    compress: Compress = False,
    features: Annotated[
        str | None,
        typer.Option(help="Compute features of the audio and pack these: a YAML with keys of WeNet's dataset_conf."),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float16"] | None, typer.Option(help="Type of packed features; float32 if not given.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Transcripts for feats.scp, if not `text` beside it; repeat it for more. '', for any source: "
            "utterances need none."
        ),
    ] = None,
    fields: Fields = None,
    segments: Annotated[
        str | None, typer.Option(help="Kaldi's segments (utt rec start end), if they are not in SOURCE.")
    ] = None,
    allow_pipes: AllowPipes = False,
    tolerance: Tolerance = None,
    length_groups: Annotated[
        str, typer.Option(help="LOW:HIGH,… in frames, as 10:500,500:1000: a folder of shards for each.")
    ] = "",
    jobs: Processes = 0,
    split: Annotated[str, typer.Option(help="i/n: only the i-th of n shares, for an array of n jobs.")] = "",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Pack shards again that lack an utterance.")
    ] = False,
    json: Json = False,
) -> None:
    """Make tar shards of single files, which are read faster.

    It runs on all cores. If it was killed, the same command goes on.
    What cannot be packed is counted and listed in OUT/failed.jsonl; the exit code is then 1.
    """
    from uio_pipes.tools.data import pack as prep

    if fields and len(source) > 1:
        raise typer.BadParameter("names fields of one source, not of several", param_hint="--fields")
    groups = parsed("--length-groups", prep.parse_groups, length_groups)
    wanted = _features(features, dtype)
    if wanted is not None:
        if form != "as-is":
            raise typer.BadParameter("features are packed as .npy, neither as wav nor as flac", param_hint="--format")
        if to != "shards":
            raise typer.BadParameter("features are packed into tars; a TouchDataset holds audio", param_hint="--to")
        if resample is not None:
            remedy = f"set resample_conf.resample_rate in {features}" if features else "features cannot be resampled"
            raise typer.BadParameter(remedy, param_hint="--resample")
    if to == "indexed":
        if compress:
            raise typer.BadParameter(
                "a TouchDataset is read at any position, so it is not compressed", param_hint="--compress"
            )
        if form != "as-is":
            raise typer.BadParameter("a TouchDataset holds PCM, neither wav nor flac", param_hint="--format")
        settings = prep.PackSettings(per_shard, groups, "wav", resample, to="indexed")
    else:
        name = f"{'data-{:05d}' if groups else 'shards_{:09d}'}.tar{'.zst' if compress else ''}"
        settings = prep.PackSettings(per_shard, groups, form, resample, name, wanted)
    target = list_path or f"{out.rstrip('/')}/shards.list"
    share = parsed("--split", prep.parse_split, split) if split else prep.WHOLE
    _write(
        source, out, target, settings, json, [*filter(None, text or ()), segments, features], jobs,
        split=share, texts=None if text == [""] else text or (), segments=segments, allow_pipes=allow_pipes,
        fields=fields, tolerance=tolerance, retry_failed=retry_failed,
    )  # fmt: skip


def _features(conf: str | None, dtype: Literal["float32", "float16"] | None) -> FeatureSettings | None:
    """Return the features that the options ask for. Raises: typer.BadParameter naming the key of the YAML."""
    if conf is None and dtype is None:
        return None
    from uio_pipes.tools.data.pack import FeatureSettings

    wanted = FeatureSettings(dtype or "float32", None if conf is None else read_conf_block(conf, "--features"))
    try:
        wanted.stages()
    except PipelineError as error:
        raise typer.BadParameter(f"{conf}: {error}", param_hint="--features") from error
    return wanted


def _write(
    source: list[str],
    out: str,
    target: str,
    settings: PackSettings,
    json: bool,
    read: list[str | None],
    jobs: int,
    **options: Any,
) -> None:
    """Write data to ``out``, and say what came of it. ``read``: what is read beside the sources."""
    from uio_pipes.tools.data.pack import pack

    failed = f"{out.rstrip('/')}/failed.jsonl"
    keep_inputs([*source, *read], [target, f"{target}.manifest", failed])
    done = pack(source, out, target, settings, jobs, **options)
    if json:
        known = vars(done) | {"shards": len(done.shards)}
        print_json({"list": None if done.waiting else known.pop("data_list"), **known})
    else:
        typer.echo(str(done) if done.waiting else f"{target}: {done}")
        if done.features:
            typer.echo(f"features: {' '.join(done.features)}")
        if done.failed and not done.waiting:
            typer.echo(f"what failed: {failed}")
    verdict(not done.failed)


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="List, shard, index, manifest (NeMo, Lhotse), Parquet file, YAML mix, folder. Path or URL."
        ),
    ],
    out: Annotated[str, typer.Argument(help="Folder to write to. Path or URL.")],
    to: Annotated[
        Literal["indexed", "shards", "raw", "cuts"],
        typer.Option(help="indexed: a TouchDataset; shards: WeNet's; raw: audio files; cuts: Lhotse's manifest."),
    ] = "indexed",
    list_path: Annotated[
        str, typer.Option("--list", help="The list to write; OUT/data.list, or OUT/cuts.jsonl.gz, if not given.")
    ] = "",
    per_part: Annotated[int, typer.Option(min=1, help="Utterances in a folder or shard.")] = 5000,
    resample: Rate = None,
    form: Annotated[
        Literal["wav", "flac"], typer.Option("--format", help="Format of audio files in shards, raw lists and cuts.")
    ] = "wav",
    compress: Compress = False,
    fields: Fields = None,
    text: Annotated[str, typer.Option(help="'' if utterances need no transcript; its name is for --fields.")] = "txt",
    allow_pipes: AllowPipes = False,
    tolerance: Tolerance = None,
    jobs: Processes = 0,
    json: Json = False,
) -> None:
    """Bring data into another layout, as for random access.

    Data of any kind become a TouchDataset (true random access), shards, a raw list or Lhotse's cuts.
    Audio becomes mono, 16 bits. But cuts refer to audio that is a file of its own; only other audio is written.
    If it was killed, the same command goes on. What cannot be converted is counted and listed in OUT/failed.jsonl; the
    exit code is then 1.
    """
    from uio_pipes.tools.data.pack import PackSettings

    if text not in ("", "txt"):
        raise typer.BadParameter(f"the transcript's name goes to --fields txt={text}", param_hint="--text")
    if compress and to != "shards":
        raise typer.BadParameter("only shards are compressed: add --to shards", param_hint="--compress")
    name = f"shards_{{:09d}}.tar{'.zst' if compress else ''}" if to == "shards" else ""
    settings = PackSettings(per_part, (), "wav" if to == "indexed" else form, resample, name, to=to)
    listed = list_path or f"{out.rstrip('/')}/{'cuts.jsonl.gz' if to == 'cuts' else 'data.list'}"
    _write(
        [source], out, listed, settings, json, [], jobs,
        texts=() if text and to != "cuts" else None, allow_pipes=allow_pipes, fields=fields, tolerance=tolerance,
    )  # fmt: skip
