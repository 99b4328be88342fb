"""``uio pack`` and ``uio convert``: data written as shards, or in another form; ``uio dict``, ``uio spm`` and
``uio cmvn``: what a training needs beside its data."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uio_pipes.base.errors import PipelineError
from uio_pipes.base.urls import counted
from uio_pipes.cli.common import (
    cores,
    keep_inputs,
    local_file,
    parsed,
    print_json,
    read_conf_block,
    show_problems,
    verdict,
)
from uio_pipes.cli.options import AllowPipes, Compress, Fields, Json, ListArgument, ProcessesOrAll, Rate, field_names

if TYPE_CHECKING:
    from uio_pipes.prep.pack import FeatureSettings, Packing
    from uio_pipes.prep.reading.texts import Texts
    from uio_pipes.prep.reading.utterance_lists import Bad


PackFormat = Enum("PackFormat", {"as_is": "as-is", "wav": "wav", "flac": "flac"}, type=str)
PackTarget = Enum("PackTarget", {"shards": "shards", "indexed": "indexed"}, type=str)
ConvertTarget = Enum(
    "ConvertTarget", {"indexed": "indexed", "shards": "shards", "raw": "raw", "cuts": "cuts"}, type=str
)
AudioFormat = Enum("AudioFormat", {"wav": "wav", "flac": "flac"}, type=str)
DtypeOption = Enum("DtypeOption", {"float32": "float32", "float16": "float16"}, type=str)
Executor = Enum("Executor", {"local": "local", "ray": "ray"}, type=str)
ListType = Enum("ListType", {"raw": "raw", "shard": "shard"}, type=str)  # WeNet's data_type
Model = Enum("Model", {"bpe": "bpe", "unigram": "unigram"}, type=str)
SegmenterName = Enum("SegmenterName", {"jieba": "jieba"}, type=str)
Type = Annotated[
    ListType | None, typer.Option("--data-type", help="What LIST is; if not given, its first line decides.")
]


def pack(
    source: Annotated[
        list[str],
        typer.Argument(
            help="A raw list, or a folder with wav.scp and text. For features, any number of feats.scp or of folders "
            "with one and text. Paths or URLs."
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
    from uio_pipes.prep import pack as prep

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
    from uio_pipes.prep.pack import FeatureSettings

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
    from uio_pipes.prep import convert as prep

    if text not in ("", "txt"):
        raise typer.BadParameter(f"the transcript's name goes to --fields txt={text}", param_hint="--text")
    if compress and to is not ConvertTarget.shards:
        raise typer.BadParameter("only shards are compressed: add --to shards", param_hint="--compress")
    target = list_path or os.path.join(out, prep.list_name(to.value))
    failed = os.path.join(out, "failed.jsonl")
    keep_inputs([source], [target, f"{target}.manifest", failed])
    done = prep.convert(
        source, out, to=to.value, per_part=per_part, resample=resample, form=form.value, compress=compress,
        list_path=list_path or None, fields=field_names(fields), needs_text=bool(text), allow_pipes=allow_pipes,
        jobs=jobs or cores(),
    )  # fmt: skip
    if json:
        print_json({"list" if n == "data_list" else n: v for n, v in vars(done).items()})
    else:
        typer.echo(f"{done.data_list}: {done}")
        if done.failed:
            typer.echo(f"what failed: {failed}")
    verdict(not done.failed)


def cmvn(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="The file to write: WeNet's global_cmvn.")],
    data_type: Annotated[
        ListType | None, typer.Option(help="What LIST is, of WeNet's; if not given, its first line decides.")
    ] = None,
    conf: Annotated[
        Path | None,
        typer.Option(help="A WeNet YAML: its dataset_conf says which features. If not given, 80 bins at 16 kHz."),
    ] = None,
    jobs: ProcessesOrAll = 0,
    json: Json = False,
) -> None:
    """Sum up features, for their global mean and variance.

    The sums have the same bits on any number of processes. If it was killed, the same command goes on.
    """
    local_file(out)
    keep_inputs([data_list, conf], [out, f"{out}.journal"])
    features = None if conf is None else read_conf_block(conf, "--conf")
    from uio_pipes.prep.cmvn import CmvnSettings, compute_cmvn
    from uio_pipes.prep.reading.data_list import wenet_type_of

    kind = wenet_type_of(data_list) if data_type is None else data_type.value
    sums = compute_cmvn(data_list, out, CmvnSettings(conf=features), jobs or cores(), data_type=kind)
    report = {"cmvn": str(out), "frames": sums.frame_num, "utterances": sums.utterances, "failures": sums.failures,
              "bins": len(sums.mean_stat)}  # fmt: skip
    if json:
        print_json(report)
    else:
        failed = f"; {counted(sums.failures, 'failure')}" if sums.failures else ""
        typer.echo(f"{out}: {counted(sums.frame_num, 'frame')} of {counted(sums.utterances, 'utterance')}{failed}")
    verdict(not sums.failures)


def dictionary(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="The file to write, as lang_char.txt.")],
    data_type: Type = None,
    non_lang_syms: Annotated[Path | None, typer.Option(help="Symbols kept whole, one a line, like {NOISE}.")] = None,
    segmenter: Annotated[
        SegmenterName | None, typer.Option(help="Write words instead of characters: those that it finds in the texts.")
    ] = None,
    user_dictionary: Annotated[
        Path | None, typer.Option(help="More words for the segmenter: `word`, `word count` or `word count tag` a line.")
    ] = None,
    hmm: Annotated[bool, typer.Option(help="Let jieba find words that are in no dictionary.")] = True,
    json: Json = False,
) -> None:
    """Make the table of characters or words that labels need.

    It has <blank> 0, <unk> 1, <sos/eos> 2, then all of them in the texts.
    """
    if segmenter is None and (user_dictionary is not None or not hmm):
        raise typer.BadParameter("name the segmenter, as --segmenter jieba", param_hint="--user-dictionary, --no-hmm")
    local_file(out)
    keep_inputs([data_list, non_lang_syms, user_dictionary], [out])
    from uio_pipes.prep.dictionary import characters, write_table
    from uio_pipes.prep.reading.texts import Texts
    from uio_pipes.tokenizers import JiebaSegmenter

    words = JiebaSegmenter(user_dictionary, hmm) if segmenter else None
    texts = Texts(data_list, data_type.value if data_type else None)
    with _explained(texts):
        count = write_table(out, characters(texts, str(non_lang_syms) if non_lang_syms else None, words))
    _say_tokens(json, str(out), count, texts.bad)


def spm(
    data_list: ListArgument,
    out: Annotated[Path, typer.Argument(help="Folder for spm.model and lang_char.txt.")],
    vocab_size: Annotated[int, typer.Option(min=4, help="Pieces, the three symbols included.")],
    model: Annotated[Model, typer.Option(help="Kind of the model.")] = Model.bpe,
    data_type: Type = None,
    json: Json = False,
) -> None:
    """Train a SentencePiece model, for labels of word pieces.

    Its labels are those of the lang_char.txt beside it.
    """
    local_file(out)
    keep_inputs([data_list], [out / "spm.model", out / "lang_char.txt"])
    from uio_pipes.prep.dictionary import write_pieces
    from uio_pipes.prep.reading.texts import Texts

    texts = Texts(data_list, data_type.value if data_type else None)
    with _explained(texts):
        count = write_pieces(out, texts, vocab_size, model.value)
    _say_tokens(json, str(out), count, texts.bad)


@contextmanager
def _explained(texts: Texts) -> Iterator[None]:
    """If nothing can be made of the texts, add to the error why some could not be read."""
    from uio_pipes.prep.dictionary import DictionaryProblem

    try:
        yield
    except DictionaryProblem as error:
        if not texts.bad:
            raise
        lost = f"texts that could not be read: {_lost(_reasons(texts.bad))}; the first: {texts.bad[0].detail}"
        raise DictionaryProblem(f"{error}; {lost}") from error


def _reasons(bad: list[Bad]) -> dict[str, int]:
    return dict(sorted(Counter(one.reason for one in bad).items()))


def _lost(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())


def _say_tokens(json: bool, out: str, tokens: int, bad: list[Bad]) -> None:
    reasons = _reasons(bad)
    if json:
        failed = [asdict(one) for one in bad]
        print_json({"out": out, "tokens": tokens, "failures": len(bad), "reasons": reasons, "failed": failed})
    else:
        lost = f"; texts that could not be read: {_lost(reasons)}" if bad else ""
        typer.echo(f"{out}: {counted(tokens, 'token')}{lost}")
        show_problems([one.detail for one in bad])
    verdict(not bad)
