"""A tiny graph with each stage on a corpus of tar shards (or other data), and what the contract tests stop and resume.

A stage that runs in a node of its own is stopped in its example. Those that only do something to one utterance all run
in the same node: they are stopped together, in :data:`CHAINS`.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tones import Tones
from video_files import video

import uio_pipes as uio
from uio_pipes.audio.timeline import Event, Timeline
from uio_pipes.core.sample import Sample
from uio_pipes.core.stage import Node, Stage
from uio_pipes.sources.conversations import ListConversations
from uio_pipes.sources.iterable import FromIterable
from uio_pipes.sources.kaldi.source import ListKaldi
from uio_pipes.sources.lhotse.shar import ListShar, LoadFromShar
from uio_pipes.sources.lhotse.source import ListCuts
from uio_pipes.sources.nemo.source import ListNemo
from uio_pipes.sources.parquet.source import ListParquet, LoadFromParquet
from uio_pipes.sources.table.source import ListTable
from uio_pipes.sources.table.streamed import JoinRows
from uio_pipes.sources.tar_index import ListTarIndex
from uio_pipes.sources.text import ListJsonl, ListText
from uio_pipes.sources.touchdataset.source import ListIndexed
from uio_pipes.stages.audio.decode import DecodeAudio, DecodeVideo, Mono
from uio_pipes.stages.audio.effects import (
    Clip,
    Codec,
    Loudness,
    Lowpass,
    PitchShift,
    Resample,
    SpeedPerturb,
    VolumePerturb,
)
from uio_pipes.stages.audio.noise import AddNoise, Reverberate
from uio_pipes.stages.batches.bucket_batch import BucketBatch
from uio_pipes.stages.batches.chunks import Chunks
from uio_pipes.stages.batches.dynamic import Batch, DynamicBatch
from uio_pipes.stages.batches.pack import Pack
from uio_pipes.stages.batches.pad import Pad
from uio_pipes.stages.batches.window import WindowBatch
from uio_pipes.stages.features.fbank import FbankFeatures, LogMelSpectrogram, MfccFeatures
from uio_pipes.stages.features.frame_labels import Activity, TurnEnd
from uio_pipes.stages.features.frames import Delay, Deltas, GlobalCmvn, SpecAug, SpecSub, SpecTrim, Stack
from uio_pipes.stages.order.balance import Balance, BalancedBatch
from uio_pipes.stages.order.mix import Interleave, Mix
from uio_pipes.stages.order.repeat import Repeat, Skip, Take
from uio_pipes.stages.order.shuffle import Shuffle, Sort
from uio_pipes.stages.reading.load_from_tar import LoadFromTar
from uio_pipes.stages.reading.loading import Declare, ListFiles, LoadFromRaw, LoadRecords, Resampled, ShardingFilter
from uio_pipes.stages.reading.open_files import OpenFiles
from uio_pipes.stages.text.align import Align
from uio_pipes.stages.text.chat import Chat
from uio_pipes.stages.text.tokenize import ChooseText, CtcFilter, Language, NormalizeText, Tokenize
from uio_pipes.stages.utterances.cache import Cache
from uio_pipes.stages.utterances.concat import Concat
from uio_pipes.stages.utterances.encoded import Encoded
from uio_pipes.stages.utterances.filter import Exclude, Filter, Keep
from uio_pipes.stages.utterances.flat_map import FlatMap
from uio_pipes.stages.utterances.labels import Overlay, Speaker, Tag
from uio_pipes.stages.utterances.map import Map, Through
from uio_pipes.stages.utterances.mixture import Mixture
from uio_pipes.stages.utterances.segment_runs import RandomCrop
from uio_pipes.stages.utterances.segments import Segments
from uio_pipes.stages.utterances.timeline import ReadTimeline

PLAIN = {"user": "<u>{}\n", "assistant": "<a>{}</a>\n"}
TURNS = [("user", "{wav}What was said?"), ("assistant", "{txt}")]


def _lists(corpus: Any) -> list[str]:
    """The corpus' own lists, as lists of noises."""
    return list(corpus.stages[0].paths)


def _code_points(text: str) -> list[int]:
    return [ord(c) for c in text]


def _twice_or_never(sample: Sample) -> Iterator[Sample]:
    if sample["txt"][-1] != "3":
        yield sample
    if sample["txt"][-1] in "05":
        yield sample


def _quarter(lengths: uio.Lengths) -> int:
    return lengths.frames // 4 + 7


def _noisy(sample: Sample, rng: Any) -> Sample:
    sample["txt"] = f"{sample['txt']}{rng.integers(10)}"
    return sample


def _quieter(sample: Sample) -> Sample:
    sample["wav"] = sample["wav"] * 0.5
    return sample


def _named(sample: Sample) -> Sample:
    sample["speaker"] = sample.key[-1]
    return sample


def _timed(sample: Sample) -> Sample:
    number = int(sample.key[-1])
    events = (Event(n / 9, n / 9 + 0.2 * (number % 3), "", f"S{n * number % 5}") for n in range(number))
    sample["timeline"] = Timeline.of(events, [(0.0, 0.3)] if number % 2 else None)
    return sample


def _with_streams(sample: Sample) -> Sample:
    sample["prompt"] = sample["answer"] = sample["wav"]
    return sample


def _with_events(sample: Sample) -> Sample:
    length = 1 + len(sample["txt"]) % 3
    sample["events"] = [{"start": i / 10, "end": (i + length) / 10, "text": f"w{i}"} for i in range(12)]
    return sample


def _with_turns(sample: Sample) -> Sample:
    times = [n / 20 for n in range(len(sample.key) + int(sample.key[-1]))]
    sample["timeline"] = Timeline.of(Event(at, at + 0.03, "w", f"S{round(at * 7) % 2}") for at in times)
    return sample


def _with_video(sample: Sample) -> Sample:
    sample["video"] = _video(5 + len(sample.key) % 3)
    return sample


@lru_cache
def _video(count: int) -> bytes:
    return video(count)


class _EverySecond(Node):
    state_fields = ("seen",)

    def __init__(self, source: Node, rest: int) -> None:
        super().__init__(source)
        self.rest = rest

    def start(self) -> None:
        self.seen = 0

    def next(self) -> Any:
        while True:
            item = self.source.next()
            self.seen += 1
            if self.seen % 2 == self.rest:
                return item


def from_iterable(corpus: uio.Pipeline) -> uio.Pipeline:
    return uio.from_iterable(Tones()).sharding_filter().shuffle(3).batch(3).pad()


def global_cmvn(corpus: uio.Pipeline) -> uio.Pipeline:
    stats = {"mean_stat": [8.0] * 8, "var_stat": [48.0] * 8, "frame_num": 2}
    return corpus.decode_audio().fbank(num_mel_bins=8, dither=0.1).global_cmvn(stats)


@lru_cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="uio-examples-")


def cached(corpus: uio.Pipeline) -> uio.Pipeline:
    graph = corpus.decode_audio().map(_quieter).cache(_folder().name).fbank(num_mel_bins=8)
    return graph.cache(_folder().name, ["feat"]).shuffle(5)


def encoded(corpus: uio.Pipeline) -> uio.Pipeline:
    graph = corpus.decode_audio().encoded(_folder().name, ["codes"], by="peaks")
    uio.encode(uio.Loader(graph.batch(4).pad()), _peaks)
    return graph.shuffle(5)


def _peaks(pcm: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole = pcm[:, : pcm.shape[1] // 160 * 160].unflatten(1, (-1, 160))
    return whole.abs().argmax(2), lengths // 160


def aligned(corpus: uio.Pipeline) -> uio.Pipeline:
    """Two codes a frame, below the letters of the text, at 100 frames a second."""
    return corpus.decode_audio().map(_with_codes).align(_code_points, 100.0, main=0, in_word_padding=1)


def delayed(corpus: uio.Pipeline) -> uio.Pipeline:
    return aligned(corpus).random_crop(max_frames=90).delay([0, 1, 2], weights=[1, 100, 0], text_padding_weight=0.5)


def _with_codes(sample: Sample) -> Sample:
    samples, rate = sample["wav"].shape[-1], sample["sample_rate"]
    frames = -(-samples * 100 // rate)
    words = [
        Event(0.3 * n, 0.3 * n + 0.25, word, channel=n % 3 // 2) for n, word in enumerate(sample["txt"].split() * 3)
    ]
    sample["timeline"] = Timeline.of(words)
    sample["feat"] = torch.arange(2 * frames).view(frames, 2) % 50
    return sample


def mix(corpus: uio.Pipeline) -> uio.Pipeline:
    audio = corpus.decode_audio()
    return uio.mix({"loud": audio, "own": audio.shuffle(4), "few": audio.take(2)}, weights=[3, 1, 2], stop="cycle")


def by_speaker(corpus: uio.Pipeline, draw: Callable[[uio.Pipeline], uio.Pipeline]) -> uio.Pipeline:
    """A raw list with speakers of 1, 1, 2, 4, 8, … utterances; another corpus stays as it is."""
    if LoadFromRaw not in map(type, corpus.stages):
        return corpus
    with open(_lists(corpus)[0]) as lines:
        rows = [{**json.loads(line), "speaker": f"S{number.bit_length()}"} for number, line in enumerate(lines)]
    return draw(uio.from_raw_list(rows))


def random_crop(corpus: uio.Pipeline) -> uio.Pipeline:
    cropped = corpus.decode_audio().random_crop(max_seconds=0.4)
    return cropped.fbank(num_mel_bins=8).random_crop(max_frames=30)


def audio_chain(corpus: uio.Pipeline) -> uio.Pipeline:
    """Everything that works on audio, but for what reads other recordings."""
    mono = corpus.decode_audio(channel=None).mono().resample(16_000).speed_perturb([0.9, 1.0, 1.1])
    loud = mono.random_crop(max_seconds=0.6).volume_perturb().clip(probability=0.7).loudness(probability=0.7)
    return loud.lowpass((1000, 3000), probability=0.7).pitch_shift(probability=0.3).codec(["gsm"], probability=0.7)


def features_chain(corpus: uio.Pipeline) -> uio.Pipeline:
    """Everything that makes features, of three streams, or works on them."""
    mfcc = (
        corpus.map(_with_streams).map(_timed).decode_audio(of="prompt").mfcc(16, num_ceps=13, dither=0.1, of="prompt")
    )
    mels = mfcc.decode_audio(of="answer").resample(16_000, of="answer").log_mel_spectrogram(16, of="answer")
    masked = global_cmvn(mels).spec_aug(max_t=20, max_f=4).spec_sub(max_t=20).spec_trim()
    return masked.deltas().stack(frames=4, stride=3).activity(3, extra="drop").turn_end(silence=0.01)


def labels_chain(corpus: uio.Pipeline) -> uio.Pipeline:
    """Everything that works on texts and labels, and video."""
    chosen = corpus.map(_named).choose_text(["key", "txt"], weights=[1, 2]).normalize_text(str.upper)
    labelled = chosen.tokenize(_code_points).language().speaker({"0": 1, "1": 2}).tag({"lang": "zh"})
    return labelled.map(_with_video).decode_video(fps=10)


def interleaved(corpus: uio.Pipeline, count: int) -> uio.Pipeline:
    """The same with ``count`` shards read at once."""
    stages = (replace(stage, interleave=count) if isinstance(stage, OpenFiles) else stage for stage in corpus.stages)
    return uio.Pipeline(tuple(stages))


def resampled(corpus: uio.Pipeline) -> uio.Pipeline:
    """Two shards at once, which may be the same."""
    first, *others = interleaved(corpus, 2).stages
    return uio.Pipeline((first, Resampled(), *others)).decode_audio().speed_perturb().shuffle(5)


EXAMPLES: dict[type[Stage], Callable[[uio.Pipeline], uio.Pipeline]] = {
    ListConversations: lambda corpus: corpus.decode_audio(of="audio").speed_perturb(of="audio"),
    ListCuts: lambda corpus: corpus,
    ListIndexed: lambda corpus: corpus,
    ListKaldi: lambda corpus: corpus,
    ListJsonl: lambda corpus: corpus,
    ListNemo: lambda corpus: corpus,
    ListText: lambda corpus: corpus,
    ListParquet: lambda corpus: corpus,
    LoadFromParquet: lambda corpus: corpus,
    ListTable: lambda corpus: corpus,
    JoinRows: lambda corpus: corpus,
    LoadFromShar: lambda corpus: corpus,
    ListFiles: lambda corpus: corpus,
    ListShar: lambda corpus: corpus,
    LoadFromRaw: lambda corpus: corpus,
    LoadFromTar: lambda corpus: corpus,
    LoadRecords: lambda corpus: corpus,
    OpenFiles: lambda corpus: interleaved(corpus, 2).shuffle(5),
    ShardingFilter: lambda corpus: corpus,
    ListTarIndex: lambda corpus: corpus,
    FromIterable: from_iterable,
    Activity: lambda corpus: (
        corpus.map(_timed).decode_audio().activity(3, by="share", powerset=2, extra="drop", shift=0.01)
    ),
    AddNoise: lambda corpus: corpus.decode_audio().add_noise(_lists(corpus), snr=(0, 15), probability=0.7),
    Align: aligned,
    Balance: lambda corpus: by_speaker(corpus, lambda rows: rows.balance("speaker").decode_audio().speed_perturb()),
    BalancedBatch: lambda corpus: by_speaker(
        corpus,
        lambda rows: rows.filter(max_frames=300).decode_audio().fbank(8, dither=0.1).balanced_batch("speaker", 3, 2),
    ),
    Batch: lambda corpus: corpus.decode_audio().batch(3).pad(),
    BucketBatch: lambda corpus: corpus.decode_audio().bucket_batch([100, 200], max_frames=500, max_wait=12).pad(),
    Clip: lambda corpus: corpus.decode_audio().clip(probability=0.7),
    Codec: lambda corpus: corpus.decode_audio().codec(["mp3", "vorbis", "gsm", "mulaw"], probability=0.7),
    Cache: cached,
    Chat: lambda corpus: (
        corpus.decode_audio().fbank(num_mel_bins=8).chat(_code_points, PLAIN, TURNS, _quarter).pack(200, window=4)
    ),
    Chunks: lambda corpus: (
        corpus.decode_audio().fbank(num_mel_bins=8, dither=0.1).chunks(0.25, left=0.05, right=0.02, rows=3).pad()
    ),
    ChooseText: lambda corpus: corpus.decode_audio().choose_text(["key", "txt"], weights=[1, 2]),
    Concat: lambda corpus: corpus.decode_audio().shuffle(5).concat(max_seconds=2.5).fbank(num_mel_bins=8),
    CtcFilter: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=8).tokenize(_code_points).ctc_filter(6),
    Declare: lambda corpus: corpus.then(Declare(0.01, "trim")).decode_audio(),
    DecodeAudio: lambda corpus: corpus.decode_audio(),
    DecodeVideo: lambda corpus: corpus.decode_audio().map(_with_video).decode_video(fps=10),
    Delay: delayed,
    Deltas: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=8, dither=0.1).deltas(),
    DynamicBatch: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=8).dynamic_batch(600).pad(),
    Encoded: encoded,
    Exclude: lambda corpus: corpus.exclude(os.devnull),
    FbankFeatures: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=16, dither=0.1),
    Filter: lambda corpus: corpus.decode_audio().filter(min_frames=40, max_frames=200),
    FlatMap: lambda corpus: corpus.flat_map(_twice_or_never).decode_audio(),
    GlobalCmvn: global_cmvn,
    Keep: lambda corpus: corpus.keep({"K0001": 0.0, "K0002": 1.0}, otherwise=0.5).decode_audio(),
    Language: lambda corpus: corpus.decode_audio().language().fbank(num_mel_bins=8).batch(4).pad(),
    LogMelSpectrogram: lambda corpus: corpus.decode_audio().resample(16_000).log_mel_spectrogram(num_mel_bins=16),
    Loudness: lambda corpus: corpus.decode_audio().loudness(probability=0.7),
    Lowpass: lambda corpus: corpus.decode_audio().lowpass((1000, 3000), probability=0.7),
    Map: lambda corpus: corpus.decode_audio().map(_noisy).map(_quieter, length="same"),
    Mixture: lambda corpus: (
        corpus.map(_named).decode_audio().shuffle(5).mixture((1, 3), pause=0.1, utterances=(1, 2), window=6)
    ),
    MfccFeatures: lambda corpus: corpus.decode_audio().mfcc(num_mel_bins=16, num_ceps=13, dither=0.1),
    Mix: mix,
    Interleave: lambda corpus: uio.interleave([corpus.decode_audio(), corpus.decode_audio().skip(2)]),
    Mono: lambda corpus: corpus.decode_audio(channel=None).mono(),
    NormalizeText: lambda corpus: corpus.decode_audio().normalize_text(str.upper).batch(4),
    Overlay: lambda corpus: corpus.overlay(os.devnull),
    ReadTimeline: lambda corpus: (
        corpus.map(_with_events).timeline(field="events").decode_audio().speed_perturb().random_crop(max_seconds=0.4)
    ),
    Tag: lambda corpus: corpus.tag({"lang": "zh"}),
    Pack: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=8).pack(90, window=4, length=_quarter),
    Pad: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=8).batch(4).pad(),
    PitchShift: lambda corpus: corpus.decode_audio().pitch_shift(probability=0.7),
    RandomCrop: lambda corpus: (
        corpus.decode_audio().random_crop(max_seconds=0.4).fbank(num_mel_bins=8).random_crop(max_frames=30)
    ),
    Repeat: lambda corpus: corpus.decode_audio().shuffle(5).repeat(2).batch(4).pad(),
    Resample: lambda corpus: corpus.decode_audio().resample(8_000),
    Resampled: resampled,
    Reverberate: lambda corpus: corpus.decode_audio().reverberate(_lists(corpus), probability=0.7),
    Segments: lambda corpus: corpus.segments(of="recording", cut_seconds=(0.2, 0.6)).decode_audio(),
    Shuffle: lambda corpus: corpus.decode_audio().shuffle(9),
    Skip: lambda corpus: corpus.decode_audio().skip(3),
    Sort: lambda corpus: corpus.decode_audio().sort(7),
    Speaker: lambda corpus: corpus.decode_audio().map(_named).speaker({"0": 1, "1": 2}).batch(4).pad(),
    SpecAug: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=16).spec_aug(max_t=20, max_f=4),
    SpecSub: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=16).spec_sub(max_t=20),
    Stack: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=16).stack(frames=4, stride=3),
    SpecTrim: lambda corpus: corpus.decode_audio().fbank(num_mel_bins=16).spec_trim(),
    SpeedPerturb: lambda corpus: corpus.decode_audio().speed_perturb([0.9, 1.0, 1.1]),
    Take: lambda corpus: corpus.decode_audio().shuffle(9).take(5),
    Through: lambda corpus: corpus.decode_audio().through(_EverySecond, 1),
    TurnEnd: lambda corpus: corpus.map(_with_turns).decode_audio().turn_end(silence=0.01, shift=0.02),
    Tokenize: lambda corpus: corpus.decode_audio().tokenize(_code_points),
    VolumePerturb: lambda corpus: corpus.decode_audio().volume_perturb(),
    WindowBatch: lambda corpus: corpus.decode_audio().bucket_batch(max_frames=500, window=7, drop_last=True).pad(),
}

CHAINS = {"audio": audio_chain, "features": features_chain, "labels": labels_chain, "codes": delayed}
