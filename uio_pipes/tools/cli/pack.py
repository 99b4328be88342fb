"""``uio pack`` and ``uio convert``: data written as shards, or in another form."""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uio_pipes.base.errors import PipelineError
from uio_pipes.tools.cli.common import (
    cores,
    keep_inputs,
    parsed,
    print_json,
    read_conf_block,
    verdict,
)
from uio_pipes.tools.cli.options import AllowPipes, Compress, Fields, Json, ProcessesOrAll, Rate, field_names

if TYPE_CHECKING:
    from uio_pipes.tools.data.pack import FeatureSettings, Packing


PackFormat = Enum("PackFormat", {"as_is": "as-is", "wav": "wav", "flac": "flac"}, type=str)
PackTarget = Enum("PackTarget", {"shards": "shards", "indexed": "indexed"}, type=str)
ConvertTarget = Enum(
    "ConvertTarget", {"indexed": "indexed", "shards": "shards", "raw": "raw", "cuts": "cuts"}, type=str
)
AudioFormat = Enum("AudioFormat", {"wav": "wav", "flac": "flac"}, type=str)
DtypeOption = Enum("DtypeOption", {"float32": "float32", "float16": "float16"}, type=str)
Executor = Enum("Executor", {"local": "local", "ray": "ray"}, type=str)


def pack(
    source: Annotated[
        list[str],
        typer.Argument(
            help="A raw list, a folder with wav.scp and text, a table, or NAME:FOLDER of a corpus (uio corpora). For "
            "features, any number of feats.scp or of folders with one and text. Paths or URLs."
        ),
    ],
    out: Annotated[str, typer.Argument(help="Folder for the shards. Path or URL.")],
    list_path: Annotated[
        str, typer.Option("--list", help="The list of shards to write; OUT/shards.list if not given.")
    ] = "",
    per_shard: Annotated[int, typer.Option(min=1, help="Utterances in a shard.")] = 1000,
    resample: Rate = None,
    form: Annotated[
        PackFormat, typer.Option("--format", help="Format of the audio; as-is: files unchanged, segments as wav.")
    ] = PackFormat.as_is,
    to: Annotated[
        PackTarget, typer.Option(help="shards: tars. indexed: folders of a TouchDataset (16-bit PCM).")
    ] = PackTarget.shards,
    compress: Compress = False,
    features: Annotated[
        str | None,
        typer.Option(help="Compute features of the audio and pack these: a YAML with keys of WeNet's dataset_conf."),
    ] = None,
    dtype: Annotated[DtypeOption | None, typer.Option(help="Type of packed features; float32 if not given.")] = None,
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
    allow_pipes: Annotated[
        bool, typer.Option("--allow-pipes", help="Run commands in wav.scp (`sox … |`), without a shell.")
    ] = False,
    length_groups: Annotated[
        str, typer.Option(help="LOW:HIGH,… in frames, as 10:500,500:1000: a folder of shards for each.")
    ] = "",
    jobs: ProcessesOrAll = 0,
    split: Annotated[str, typer.Option(help="i/n: only the i-th of n shares, for an array of n jobs.")] = "",
    executor: Annotated[
        Executor, typer.Option(help="ray: on the cluster of RAY_ADDRESS, or on --jobs cores here.")
    ] = Executor.local,
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
    from uio_pipes.tools.data.recognize import by_rows

    if len(source) == 1 and (fields or by_rows(source[0])):
        given: dict[str, object] = {"--features": features, "--segments": segments, "--length-groups": length_groups}
        given |= {"--split": split, "--executor": executor is Executor.ray}
        if names := [name for name, value in given.items() if value]:
            remedy = "make a raw list of it first (uio convert --to raw)"
            what = f"{source[0]} is packed in the order in which it is read: {remedy}"
            raise typer.BadParameter(what, param_hint=names[0])
        at = list_path or f"{out.rstrip('/')}/shards.list"
        _convert(
            source[0], out, at, json, to=to.value, per_part=per_shard, resample=resample, form=form.value,
            compress=compress, fields=field_names(fields), needs_text=text != [""], allow_pipes=allow_pipes,
            jobs=jobs or cores(), processes=jobs or cores(),
        )  # fmt: skip
        return
    if fields:
        raise typer.BadParameter("names fields of one source, not of several", param_hint="--fields")
    groups = parsed("--length-groups", prep.parse_groups, length_groups)
    wanted = _features(features, dtype)
    if wanted is not None or prep.names_features(source[0]):
        _refuse_audio(form, resample, to, features)
    name = "data-{:05d}" if groups or to is PackTarget.indexed else "shards_{:09d}"
    if to is PackTarget.indexed:
        if compress:
            raise typer.BadParameter(
                "a TouchDataset is read at any position, so it is not compressed", param_hint="--compress"
            )
        if form is not PackFormat.as_is:
            raise typer.BadParameter("a TouchDataset holds PCM, neither wav nor flac", param_hint="--format")
        settings = prep.PackSettings(per_shard, groups, "wav", resample, name)
    else:
        tars = f"{name}.tar{'.zst' if compress else ''}"
        settings = prep.PackSettings(per_shard, groups, form.value, resample, tars, wanted)
    target, failed = list_path or f"{out.rstrip('/')}/shards.list", f"{out.rstrip('/')}/failed.jsonl"
    keep_inputs([*source, *filter(None, text or ()), segments, features], [target, f"{target}.manifest", failed])
    share = parsed("--split", prep.parse_split, split) if split else prep.WHOLE
    texts = None if text == [""] else text or ()
    packed = prep.pack(
        source, out, target, settings, jobs or cores(), split=share, texts=texts, segments=segments,
        allow_pipes=allow_pipes, executor=executor.value, retry_failed=retry_failed,
    )  # fmt: skip
    if json:
        print_json(_report(packed, target))
    else:
        typer.echo(str(packed) if packed.waiting else f"{target}: {packed}")
        if packed.features:
            typer.echo(f"features: {' '.join(packed.features)}")
        if packed.failed and not packed.waiting:
            typer.echo(f"what failed: {failed}")
    verdict(not packed.failed)


def _features(conf: str | None, dtype: DtypeOption | None) -> FeatureSettings | None:
    """Return the features that the options ask for. Raises: typer.BadParameter naming the key of the YAML."""
    if conf is None and dtype is None:
        return None
    from uio_pipes.tools.data.pack import FeatureSettings

    kind = DtypeOption.float32 if dtype is None else dtype
    wanted = FeatureSettings(kind.value, None if conf is None else read_conf_block(conf, "--features"))
    try:
        wanted.stages()
    except PipelineError as error:
        raise typer.BadParameter(f"{conf}: {error}", param_hint="--features") from error
    return wanted


def _refuse_audio(form: PackFormat, resample: int | None, to: PackTarget, features: str | None) -> None:
    """Raises: typer.BadParameter for options that only audio has."""
    if form is not PackFormat.as_is:
        raise typer.BadParameter("features are packed as .npy, neither as wav nor as flac", param_hint="--format")
    if to is not PackTarget.shards:
        raise typer.BadParameter("features are packed into tars; a TouchDataset holds audio", param_hint="--to")
    if resample is not None:
        remedy = f"set resample_conf.resample_rate in {features}" if features else "features cannot be resampled"
        raise typer.BadParameter(remedy, param_hint="--resample")


def _report(packed: Packing, target: str) -> dict[str, Any]:
    names = ("waiting", "utterances", "frames", "bytes", "features", "failed", "left_out")
    known = {name: getattr(packed, name) for name in names}
    return {"list": None if packed.waiting else target, "shards": len(packed.shards), **known}


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="List, shard, index, manifest (NeMo, Lhotse), Parquet file, YAML mix, folder. Path or URL."
        ),
    ],
    out: Annotated[str, typer.Argument(help="Folder to write to. Path or URL.")],
    to: Annotated[
        ConvertTarget,
        typer.Option(help="indexed: a TouchDataset; shards: WeNet's; raw: audio files; cuts: Lhotse's manifest."),
    ] = ConvertTarget.indexed,
    list_path: Annotated[
        str, typer.Option("--list", help="The list to write; OUT/data.list, or OUT/cuts.jsonl.gz, if not given.")
    ] = "",
    per_part: Annotated[int, typer.Option(min=1, help="Utterances in a folder or shard.")] = 5000,
    resample: Rate = None,
    form: Annotated[
        AudioFormat, typer.Option("--format", help="Format of audio files in shards, raw lists and cuts.")
    ] = AudioFormat.wav,
    compress: Compress = False,
    fields: Fields = None,
    text: Annotated[str, typer.Option(help="'' if utterances need no transcript; its name is for --fields.")] = "txt",
    allow_pipes: AllowPipes = False,
    jobs: Annotated[int, typer.Option(min=0, help="Threads that decode; 0: one for each core.")] = 0,
    json: Json = False,
) -> None:
    """Bring data into another layout, as for random access.

    Data of any kind become a TouchDataset (true random access), shards, a raw list or Lhotse's cuts.
    Audio becomes mono, 16 bits. But cuts refer to audio that is a file of its own; only other audio is written.
    If it was killed, the same command goes on. What cannot be converted is counted and listed in OUT/failed.jsonl; the
    exit code is then 1.
    """
    from uio_pipes.tools.data import convert as prep

    if text not in ("", "txt"):
        raise typer.BadParameter(f"the transcript's name goes to --fields txt={text}", param_hint="--text")
    if compress and to is not ConvertTarget.shards:
        raise typer.BadParameter("only shards are compressed: add --to shards", param_hint="--compress")
    target = list_path or os.path.join(out, prep.list_name(to.value))
    _convert(
        source, out, target, json, to=to.value, per_part=per_part, resample=resample, form=form.value,
        compress=compress, fields=field_names(fields), needs_text=bool(text), allow_pipes=allow_pipes,
        jobs=jobs or cores(),
    )  # fmt: skip


def _convert(source: str, out: str, target: str, json: bool, **options: Any) -> None:
    """Convert data to ``out``, and say what came of it."""
    from uio_pipes.tools.data.convert import convert

    failed = os.path.join(out, "failed.jsonl")
    keep_inputs([source], [target, f"{target}.manifest", failed])
    done = convert(source, out, list_path=target, **options)
    if json:
        print_json({"list" if n == "data_list" else n: v for n, v in vars(done).items()})
    else:
        typer.echo(f"{done.data_list}: {done}")
        if done.failed:
            typer.echo(f"what failed: {failed}")
    verdict(not done.failed)
