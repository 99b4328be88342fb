"""What is wrong fails when it is described, with a message that states the rule, the value and the remedy.

One table for all stages and sources: a function, the words of its message, and the arguments that must bring them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers_bad import code_points

import uio_pipes as uio
from uio_pipes.stages.batches.bucket_batch import BucketBatch
from uio_pipes.stages.batches.dynamic import Batch, DynamicBatch
from uio_pipes.stages.text.tokenize import CtcFilter

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
RAW = uio.from_raw_list("x.list")
AUDIO = RAW.decode_audio()
SHARDS = uio.from_shard_list("x.list")
TOUCH = uio.from_indexed("x")
TEXTS = uio.from_iterable([{"key": "a", "txt": "aa"}]).sharding_filter()
ITEMS = [{"key": f"{i}", "wav": np.zeros(800, np.float32), "sample_rate": 8000, "txt": "t"} for i in range(2)]
PLAIN = {"user": "<u>{}", "assistant": "<a>{}</a>"}
RAW_TEXTS = uio.from_raw_list([{"key": "a", "wav": "none.wav", "txt": "t"}]).map(lambda s: {"key": s["key"]})
CHARS = uio.CharTokenizer({"<unk>": 0})
NAN, INFINITE = float("nan"), float("inf")


def given(*args: Any, **options: Any) -> Arguments:
    return args, options


def each(*values: Any) -> list[Arguments]:
    """Each value as the only argument."""
    return [given(value) for value in values]


def noisy(**options: Any) -> uio.Pipeline:
    return AUDIO.add_noise(**{"noises": "n.list", **options})


def in_rooms(**options: Any) -> uio.Pipeline:
    return AUDIO.reverberate(**{"impulse_responses": "r.list", **options})


def tars(**options: Any) -> uio.Pipeline:
    return uio.from_shard_list("a.tar", **options)


def parquet(**options: Any) -> uio.Pipeline:
    return uio.from_parquet(**{"paths": "a.parquet", **options})


PAIRS: dict[str, Any] = {"num_buckets": (3, 2), "max_frames": 9}
PAD = AUDIO.batch(2).pad
WRONG: list[tuple[Callable[..., Any], str, list[Arguments]]] = [
    # What is done to audio
    (AUDIO.add_noise, "noises must be", each([], 3, None)),
    (noisy, "snr must be", [given(snr=(10, 5)), given(snr=(1, 2, 3)), given(snr=5)]),
    (noisy, "cache_mb", [given(cache_mb=-1)]),
    (noisy, "clips must be", [given(clips=value) for value in ((0, 2), (3, 2), (1.0, 2.0), 3)]),
    (noisy, "part must be", [given(part=(0.5, 1.5)), given(part=0.5)]),
    (in_rooms, "reverberate: ", [given(impulse_responses=[]), given(probability=-0.1), given(cache_mb=-1)]),
    (AUDIO.reverberate, "rt60 must be .*within 0.05 to 10 s", [given(rt60=(0, 1))]),
    (AUDIO.reverberate, "give either impulse_responses, for recorded rooms, or rt60", [given()]),
    (AUDIO.reverberate, "give either", [given("rooms.list", rt60=(0.1, 0.2))]),
    *(
        (make, "probability", [given(**more, probability=value) for value in (-0.1, 1.1, "often")])
        for make, more in (
            *((make, {}) for make in (AUDIO.lowpass, AUDIO.clip, AUDIO.loudness, AUDIO.pitch_shift, noisy, in_rooms)),
            (AUDIO.codec, {"codecs": ["gsm"]}),
        )
    ),
    (AUDIO.volume_perturb, "0 < low <= high", [given(0.0, 1.0), given(2.0, 1.0), given(-1.0, 1.0)]),
    (AUDIO.lowpass, r"lowpass: cutoff must be \(lowest, highest\), within 10 to", [given((5000, 100))]),
    (AUDIO.lowpass, "cutoff must be", [given(4000)]),
    (AUDIO.codec, "codecs must be a list of 'opus', 'mp3'", [given(["opus", "speex"])]),
    (AUDIO.codec, "codecs must be", each([], 3)),
    (AUDIO.codec, r"compression_level must be .*, within 0 to 1, not", [given(compression_level=(0.5, 1.5))]),
    (AUDIO.clip, "gain_db must be", [given((1, 2, 3))]),
    (AUDIO.clip, "hard must be a probability", [given(hard=2)]),
    (AUDIO.loudness, "target must be .*within -70 to 0 LUFS", [given((-20, 10))]),
    (AUDIO.pitch_shift, "semitones must be", [given((0, NAN))]),
    (AUDIO.resample, "1,000 to 768,000.*did you mean 16_000", [given(16)]),
    (AUDIO.resample, "1,000 to 768,000.*did you mean 8_000", [given(8)]),
    (AUDIO.resample, "1,000 to 768,000.*try 16_000", [given(999)]),
    (AUDIO.resample, "1,000 to 768,000.*16_000", each(0, 10**9)),
    (
        AUDIO.random_crop,
        "random_crop: ",
        [given(), given(max_seconds=1.0, max_frames=2), given(max_seconds=0), given(max_frames=0)],
    ),
    (
        AUDIO.concat,
        "concat: ",
        [given(), given(max_seconds=1.0, max_frames=2), given(max_seconds=0), given(max_frames=-1)],
    ),
    (
        AUDIO.mixture,
        "^mixture: speakers must be .*within 1 to 100",
        [given((0, 2), 1.0), given((3, 2), 1.0), given(3, 1.0)],
    ),
    (AUDIO.mixture, "^mixture: speakers must be two whole numbers", [given((1.5, 2), 1.0)]),
    (AUDIO.mixture, "^mixture: utterances must", [given(pause=1.0, utterances=(0, 1))]),
    (AUDIO.mixture, "^mixture: give either pause or overlap", [given(), given(pause=1.0, overlap=(0, 1))]),
    (AUDIO.mixture, "^mixture: pause must be above 0", [given(pause=value) for value in (0, -1.0)]),
    (AUDIO.mixture, "^mixture: overlap must be .*within 0 to 1", [given(overlap=(0.5, 1.5))]),
    (AUDIO.mixture, "^mixture: window must hold the most speakers, 4, or more, not 3", [given(pause=1.0, window=3)]),
    # Features
    (AUDIO.activity, "^activity: speakers must", [given(value) for value in (0, [], ["a", "a"], "ab", 1.5)]),
    (AUDIO.activity, "^activity: by must be 'centre' or 'share'", [given(by="center")]),
    (AUDIO.activity, "^activity: extra must be 'fail' or 'drop'", [given(extra="keep")]),
    (AUDIO.activity, "^activity: powerset must", [given(powerset=0), given(3, powerset=4)]),
    (AUDIO.activity, "^activity: subsampling must be 1 or more", [given(subsampling=0)]),
    (AUDIO.activity, "^activity: shift must be above 0", [given(shift=0)]),
    (RAW.deltas, "^deltas: order must", [given(order=0), given(order=1.5)]),
    (RAW.deltas, "^deltas: win_length must", [given(win_length=value) for value in (1, 4, "5")]),
    (RAW.spec_sub, "^spec_sub: max_t must", [given(max_t=0), given(max_t=2.0)]),
    (RAW.spec_sub, "^spec_sub: num_t_sub must", [given(num_t_sub=-1)]),
    (RAW.spec_trim, "^spec_trim: max_t must", [given(max_t=0), given(max_t=1.5)]),
    (RAW.stack, "stack: stride must be 1 or more, not 0; Paraformer has", [given(7, 0)]),
    (RAW.mfcc, r"num_ceps must be from 1 to num_mel_bins \(23\), not 40; .*80.*13", [given()]),
    (RAW.mfcc, "^mfcc: .*num_ceps", [given(num_ceps=0), given(num_ceps=13.0)]),
    (RAW.mfcc, "^mfcc: .*low_freq", [given(num_ceps=13, low_freq=-1.0)]),
    (RAW.mfcc, "^mfcc: .*high_freq", [given(num_ceps=13, low_freq=400.0, high_freq=300.0)]),
    (RAW.mfcc, "^mfcc: .*dither", [given(num_ceps=13, dither=-1.0)]),
    (RAW.mfcc, "^mfcc: .*num_mel_bins", [given(num_ceps=3, num_mel_bins=3)]),
    *(
        (RAW.log_mel_spectrogram, rf"^log_mel_spectrogram: {name} must", [given(**{name: value}) for value in values])
        for name, values in {
            "n_fft": [0, 401, 400.0],
            "hop_length": [0],
            "num_mel_bins": [0],
            "padding": [-1],
            "max_duration": [0.0125, INFINITE],
            "pad_or_trim": [1],
        }.items()
    ),
    (
        RAW.global_cmvn,
        "^global_cmvn: stats",
        each(
            {},
            {"mean_stat": [1.0], "var_stat": [1.0]},
            {"mean_stat": 1.0, "var_stat": 2.0, "frame_num": 3},
            *(5, None, [1]),
        ),
    ),
    (RAW.global_cmvn, "^global_cmvn: norm_var must be True or False", [given("x", norm_var=1)]),
    (uio.from_iterable([]).fbank, "fbank: of must", [given(of=name) for name in ("wav", "key", "a b", "label", 3)]),
    (
        uio.from_iterable([]).sort,
        "length must be a function of the lengths, or one of",
        [given(length=name) for name in ("words", "prompt", "frames.prompt", 5)],
    ),
    (RAW.bucket_batch, "^bucket_batch: .*10, 10", [given([10, 10], [1, 1, 1])]),
    (RAW.bucket_batch, "^bucket_batch: .*needs a limit", [given(), given([10])]),
    (RAW.bucket_batch, "^bucket_batch: .*a budget", [given([10], [1, 2], max_frames=5)]),
    (RAW.keep, r"^keep: probabilities must be .*, not \{'a': 1.5\}; as in", [given({"b": 1, "a": 1.5})]),
    (
        RAW.keep,
        "^keep: probabilities must be a dict of numbers from 0 to 1 by key, or a path",
        each(3, None, {"a": NAN}),
    ),
    (RAW.keep, "^keep: otherwise must be from 0 to 1, not 2; 1 keeps", [given({}, 2)]),
    (RAW.balance, "^balance: by must be the name of a field, not ''", [given("")]),
    (
        RAW.balance,
        "^balance: power must be from 0 to 1, not .*; 0 gives each value",
        [given("lang", p) for p in (-1, 2)],
    ),
    (RAW.balanced_batch, "^balanced_batch: classes must be 1 or more, not 0; as in", [given("speaker", 0, 4)]),
    (RAW.balanced_batch, "^balanced_batch: each must be 1 or more, not 0; as in", [given("speaker", 4, 0)]),
    *(
        (make.balance, "^balance: .*'lang' are not known before .*uio index.*put it into each of them", [given("lang")])
        for make in (
            SHARDS,
            TEXTS,
            parquet(),
            uio.mix([RAW]),
            uio.list_files("x").repeat().load_from_raw(),
        )
    ),
    (AUDIO.balance, "^balance: .*decode_audio comes between them; put balance directly after", [given("lang")]),
    (AUDIO.shuffle(9).balanced_batch, "^balanced_batch: .*but shuffle comes between them; remove", [given("s", 2, 2)]),
    (RAW.balance("s").balanced_batch, "^balanced_batch: .*but balance comes between", [given("s", 2, 2)]),
    (RAW.filter, "^filter: .*20, 10", [given(min_frames=20, max_frames=10)]),
    (RAW.filter, "^filter: .*20, 10", [given(token_min_length=20, token_max_length=10)]),
    (RAW.filter, "^filter: .*2, 1", [given(min_output_input_ratio=2)]),
    # Texts and fields
    (TEXTS.tokenize, "tokenize: remove_blanks must be", [given(CHARS, remove_blanks="yes")]),
    (
        TEXTS.tokenize(code_points).chat,
        "tokenize has made some already: leave tokenize out",
        [given(code_points, PLAIN)],
    ),
    (
        TOUCH.choose_text,
        "choose_text: ",
        [
            *each("txt", [], ["a", "a"], [3]),
            *(given(["a"], weights=weights) for weights in ([1, 2], [0], 1, [INFINITE])),
        ],
    ),
    (RAW.tokenize, r"CharTokenizer'> is a class.*made: uio\.CharTokenizer\(", [given(uio.CharTokenizer)]),
    (RAW.align, r"^align: .*CharTokenizer'> is a class.*made: uio\.CharTokenizer\(", [given(uio.CharTokenizer)]),
    (RAW.align, "^align: rate must be frames a second, above 0, not 0", [given(code_points, 0)]),
    (RAW.align, "^align: bos_eos must be two tokens", [given(code_points, bos_eos=one) for one in (1, [1], [1, "2"])]),
    (RAW.align, "^align: bos_eos marks who speaks.*add keep_main_only=False", [given(code_points, bos_eos=(1, 2))]),
    (RAW.delay, "^delay: delays must be a list", each(3, [-1], ["0"], [0.5])),
    (RAW.delay, "^delay: weights must be", [given([0, 1], weights=one) for one in ([1], [1, -1], 1)]),
    (RAW.delay, "^delay: text_padding.* must be", [given([0], text_padding=3), given([0], text_padding_weight=-1)]),
    (AUDIO.decode_audio, "rising order", [given(channel=one) for one in ([], [1, 0], [0, 0], [-1, 0], [0.5])]),
    (RAW.normalize_text, "function of the text, not 'upper'", [given("upper")]),
    (RAW.language, "a list of languages", [given(limited_langs=[]), given(limited_langs="zh")]),
    (RAW.language, "must be of ar, bg.*tlh.*detect=", [given(limited_langs=["zh", "tlh"])]),
    (RAW.language, "a script of its own.*detect=", [given(limited_langs=["en", "fr"])]),
    (RAW.language, "function of the text", [given(detect="zh")]),
    (RAW.speaker, "speaker: .*name number", each(3, None, {"a": "1"}, {"a": -1}, {"a": True})),
    (TEXTS.tag, "fields must be values by name", each({}, "en", {1: "en"})),
    (TEXTS.tag, "a tag cannot be key or a field of the audio", each({"key": "x"}, {"wav": "x.wav"})),
    (TEXTS.tag, "lang must be a string, a number, True or False", each({"lang": ["en"]})),
    (SHARDS.overlay, "path must", each("", 3)),
    (SHARDS.overlay, "missing must", [given("x", missing="no")]),
    (SHARDS.decode_audio().overlay, "put overlay before decode_audio", [given("o.jsonl")]),
    (
        TOUCH.decode_video,
        "decode_video: ",
        [
            *(given(fps=value) for value in (0, "25")),
            *(given(size=value) for value in ((96,), (0, 3), 96)),
            *(given(field=value) for value in ("", 3)),
        ],
    ),
    # Utterances, order and batches
    (TOUCH.segments, "pick must be", [given(pick="some")]),
    (TOUCH.segments, "of must be", [given(of="file")]),
    (TOUCH.segments, "needs cut_seconds", [given(of="recording")]),
    (
        TOUCH.segments,
        "merge_seconds and random_first cannot be combined with of=",
        [given(of="recording", cut_seconds=(1, 2), merge_seconds=3)],
    ),
    (TOUCH.segments, "minimum, maximum", [given(cut_seconds=value) for value in ((2, 1), 0, (0, 1), "3")]),
    (TOUCH.segments, "above 0", [given(merge_seconds=0)]),
    (TOUCH.segments, "random_first needs merge_seconds", [given(random_first=True)]),
    (TOUCH.segments, "separator", [given(separator=3)]),
    (TOUCH.segments, "field must", [given(field="")]),
    (TOUCH.segments, "segments: texts must be", [given(texts=names) for names in ("txt", [], ["a", "a"], [""])]),
    (TEXTS.filter, "share must be from 0 to 1, not 1.5", [given(share=1.5)]),
    (TEXTS.filter, r"share cannot be combined with max_frames", [given(share=0.5, max_frames=10)]),
    (TEXTS.filter, "lowest, highest", [given(share=(0.5, 0.1)), given(share="a")]),
    (TEXTS.filter, "salt needs share", [given(salt="a")]),
    (
        TEXTS.filter,
        "share cannot be combined with length and max_length",
        [given(share=0.1, length="tokens", max_length=3)],
    ),
    (CtcFilter, r"one of \[1, 4, 6, 8\] or a function", each(0, 2, 5, 4.0, True, "4", None)),
    (TEXTS.repeat, "times must be 1 or more", [given(0)]),
    (TEXTS.repeat, "whole number", [given(1.5)]),
    (TEXTS.take, "number must be 1 or more", each(0, -2)),
    (TEXTS.take, "take: missing a required argument: 'number'", [given()]),
    (TEXTS.skip, "number must be 0 or more", [given(-1)]),
    (RAW.through, r"Node class.*\.map", each(None, "x", len, int, lambda source: source, uio.Node.next)),
    (
        DynamicBatch,
        r"max_frames and max_samples cannot be combined",
        [given(100, 16_000)],
    ),
    (DynamicBatch, "max_samples must be 1 or more, not 0", [given(max_samples=0)]),
    (DynamicBatch, "quadratic must be 1 or more", [given(quadratic=-1)]),
    (DynamicBatch, "quadratic must be a whole number", [given(quadratic=1.5)]),
    (DynamicBatch, "min_batch_size must be 1 or more", [given(min_batch_size=0)]),
    (DynamicBatch, "drop_last must be True or False", [given(drop_last=1)]),
    (Batch, "drop_last must be True or False", [given(4, drop_last="yes")]),
    (BucketBatch, "max_frames and max_samples cannot be combined", [given([9], max_frames=5, max_samples=5)]),
    (BucketBatch, "quadratic needs a budget", [given([9], [4, 4], quadratic=100)]),
    (BucketBatch, "bucket_batch_sizes cannot be combined with a budget", [given([9], [4, 4], max_samples=100)]),
    (BucketBatch, "none below min_batch_size", [given([9], [4, 2], min_batch_size=3)]),
    (RAW.bucket_batch, "window must be 1 or more", [given(max_frames=500, window=0)]),
    (RAW.bucket_batch, "must not be above window", [given(max_frames=500, window=4, min_batch_size=5)]),
    (
        RAW.bucket_batch,
        "cannot be combined with window, which has no buckets",
        [
            given([100], max_frames=500, window=10),
            given(max_frames=500, window=10, max_wait=2),
            given(**PAIRS, window=5),
            given(max_frames=500, window=5, num_buckets=3),
        ],
    ),
    (RAW.bucket_batch, "the size of a batch needs a limit; give max_frames", [given(window=10)]),
    (
        RAW.bucket_batch,
        "cost must be a function of frames, or of frames and tokens",
        [given(max_cost=9, cost=c) for c in (3, lambda: 1, lambda a, b, c: 1)],
    ),
    (
        RAW.bucket_batch,
        "cost must be a function of the 2 that length names",
        [given(max_cost=9, cost=lambda frames: 1, length=["frames", "prompt.frames"])],
    ),
    (BucketBatch, "that rise", [given([(9, 3), (9, 2)], max_frames=9)]),
    (BucketBatch, "or of pairs of them", [given([(9, 3), 12], max_frames=9), given([(9, 3, 1)], max_frames=9)]),
    (BucketBatch, "above 0", [given([(0, 3)], max_frames=9)]),
    (BucketBatch, "must be 1 numbers above 0", [given([(9, 3)], [1, 2])]),
    (BucketBatch, "num_buckets must be 1 or more, or a pair", [given(num_buckets=(3, 0), max_frames=9)]),
    (
        BucketBatch,
        "bucket_batch_sizes of pairs of lengths need",
        [given(num_buckets=(3, 2), bucket_batch_sizes=[1] * 6)],
    ),
    (
        BucketBatch,
        "num_buckets cannot be combined with bucket_boundaries; leave one of them out",
        [given([100], max_frames=9, num_buckets=4), given([(9, 3)], **PAIRS)],
    ),
    (BucketBatch, "length must be a pair", [given(**PAIRS, length="tokens")]),
    (
        BucketBatch,
        "length must be a function",
        [given(**PAIRS, length=("tokens", "words")), given(max_frames=9, length=("frames", "tokens"))],
    ),
    (BucketBatch, "max_samples cannot be combined with pairs", [given(num_buckets=(3, 2), max_samples=9)]),
    (
        BucketBatch,
        "max_cost and cost, a function of lengths, need each other",
        [given(num_buckets=(3, 2), max_cost=9), given(**PAIRS, cost=max)],
    ),
    (BucketBatch, "buckets by cost, a function of two lengths, must be pairs", [given(max_cost=9, cost=max)]),
    (BucketBatch, "the size of a batch needs a limit; .* or max_cost", [given(num_buckets=(3, 2))]),
    (BucketBatch, "max_frames and max_tokens cannot be combined", [given(**PAIRS, max_tokens=9)]),
    (BucketBatch, "leave quadratic out", [given(num_buckets=(3, 2), max_cost=9, cost=max, quadratic=5)]),
    (TEXTS.pack, "max_tokens must be 1 or more, not 0", [given(0)]),
    (TEXTS.pack, "rows must be 1 or more", [given(9, 0)]),
    (TEXTS.pack, "window must be 1 or more", [given(9, 1, 0)]),
    (TEXTS.pack, "overflow must be None, 'drop'", [given(9, 1, 9, "cut")]),
    (TEXTS.pack, "length must be a function of the lengths", [given(9, 1, 9, None, "words")]),
    (TEXTS.pack, "pack: it needs either max_tokens, .* or max_frames, .*; as in", [given(), given(9, max_frames=9)]),
    (AUDIO.pack, "pack: max_frames must be 1 or more, not 0; try 12_000", [given(max_frames=0)]),
    (
        AUDIO.pack,
        "max_frames must be a multiple of multiple_of=8, not 90; try 96",
        [given(max_frames=90, multiple_of=8)],
    ),
    (AUDIO.pack, "multiple_of must be 1 or more", [given(max_frames=90, multiple_of=0)]),
    (AUDIO.pack, "length and pad cannot be combined with max_fr", [given(max_frames=9, pad=1, length="tokens")]),
    (TEXTS.pack, "multiple_of and fixed cannot be combined with max_t", [given(8, multiple_of=8, fixed=True)]),
    (AUDIO.pack, "overflow='split' cannot be combined with max_fr", [given(max_frames=9, overflow="split")]),
    (AUDIO.pack, "overflow='alone' cannot .* with fixed; try", [given(max_frames=9, overflow="alone", fixed=True)]),
    (TEXTS.pack, "layout must be 'segments' or", [given(9, 1, 9, None, None, (), 0, -100, "rows")]),
    (
        TOUCH.batch(2).pad,
        "pad: keep must",
        [given(keep=k) for k in ("video", [3], ["a", "a"], ["feats"], ["wav"], ["label"])],
    ),
    (PAD, r"value must be a number for the features.*not '0'", [given(value="0")]),
    (PAD, r"value must be a number", [given(value={"feats": None})]),
    (PAD, r"value of target must be a whole number, .*, not 0.5; -100 is", [given(value={"target": 0.5})]),
    (PAD, r"value of prompt_target must be a whole number", [given(value={"feats": 0.5, "prompt_target": -0.1})]),
    (PAD, r"names must be new names by the outputs.*input_features", [given(names=["feats"])]),
    (PAD, r"names must give each output a name of its own", [given(names={"feats": "x", "target": "x"})]),
    (PAD, r"order must be 'longest' or 'kept', not 'shortest'", [given(order="shortest")]),
    (PAD, r"lengths must be int32 or int64, not 'int16'; models of Hugging Face take int64", [given(lengths="int16")]),
    (PAD, r"lengths must be int32 or int64, not torch.int64", [given(lengths=torch.int64)]),
    (PAD, r"value has 'keys', but what is padded is feats, .*; leave it out", [given(value={"keys": 1})]),
    (PAD, "mask and transpose cannot be combined with layout='ragged'", [given(layout="ragged", mask=True)]),
    (PAD, r"collate makes the whole batch, so mask would do nothing", [given(collate=list, mask=True)]),
    (uio.mix, "give pipelines", each([], "a.list")),
    (uio.mix, "'a' must be a Pipeline", [given({"a": "a.list"})]),
    (uio.mix, "numbers above 0", [given([TEXTS], [0]), given([TEXTS], 3)]),
    (uio.mix, "1 numbers", [given([TEXTS], [1, 2])]),
    (uio.mix, "must name the sources", [given({"a": TEXTS}, {"b": 1})]),
    (uio.mix, "stop must be one of", [given([TEXTS], stop="never")]),
    (uio.mix, "source .1. must give samples as other sources do, not 'batches'", [given([TEXTS, TEXTS.batch(2)])]),
    (uio.mix, "dealt to lanes, or none", [given([TEXTS, uio.from_iterable([{"txt": ""}])])]),
    (
        uio.mix,
        "2 numbers above 0",
        [
            given([TEXTS, TEXTS], [1, uio.by_step({0: 1, 2: -1})]),
            given([TEXTS, TEXTS], uio.by_step({0: [1, 1], 2: [0, 0]})),
        ],
    ),
    # What follows the step
    (
        uio.by_step,
        "a value for each step at which it changes",
        each({}, {1: 2}, {0: 1, -1: 2}, {0: 1, 2.5: 2}, {0: 1, True: 2}, [1, 2]),
    ),
    (TEXTS.batch, "batch: batch_size cannot follow the step", [given(uio.by_step({0: 1, 2: 3}))]),
    (TEXTS.filter, "min_frames must not be above max_frames", [given(max_frames=uio.by_step({0: 100, 2: 1}))]),
    (TEXTS.filter, "max_frames must be a number", [given(max_frames=uio.by_step({0: 100, 2: "x"}))]),
    # Sources
    (
        uio.list_files,
        "name a list file",
        each([], "", "  ", [""], ["a.list", " "], [1], [None], ["a.list", 3.5], [["a.list"]]),
    ),
    (uio.list_files, "list", each(None, 3)),
    (uio.from_indexed, "dirs must", each([], " ", [3])),
    (uio.from_indexed, "metainfo must be", [given("x", metainfo=value) for value in ("", "a/b", 3)]),
    (
        uio.from_indexed,
        "from_indexed: texts must be",
        [given("x", texts=names) for names in ("txt", [], ["a", "a"], [""])],
    ),
    (uio.from_indexed, "leave wav and feat out", [given("folder", fields={"wav": "audio"})]),
    (parquet, 'from_parquet: fields must .* as in {"wav": "audio"', [given(fields=["audio"])]),
    (parquet, "from_parquet: shuffle must be True or False, not 1", [given(shuffle=1)]),
    (parquet, "columns must be names", [given(columns="age")]),
    (parquet, "paths must be", [given(paths=[]), given(paths=5)]),
    (uio.from_text, "from_text", each({}, {"key": "a"}, {"": "a"}, [], 3, {"txt": []})),
    (uio.from_iterable, "only once", each((item for item in ITEMS), iter(ITEMS))),
    (uio.from_iterable, "must yield utterances", each(7, "data.list", RAW)),
    (
        uio.from_iterable,
        r"must yield utterances.*; choose one of its values, such as data\[.train.\]",
        each({"train": [1]}),
    ),
    (
        uio.from_kaldi,
        r"must name existing fields \(key, wav, .*not 'text'",
        [given("wav.scp", "text", fields={"words": "text"})],
    ),
    (uio.from_jsonl, "both name the transcript", [given("a.jsonl", text="content", fields={"txt": "body"})]),
    (uio.from_table, "table must be a path", each([], "", 3, None, [3], ["a.tsv", {"wav": "x"}])),
    (uio.from_table, "values that JSON has: .*from_iterable", [given([{"wav": b"x"}])]),
    (
        uio.from_table,
        'fields must be .* as in {"wav": "path"',
        [given("a.tsv", fields=f) for f in ([], {}, {"wav": 3})],
    ),
    (
        uio.from_table,
        "is not an expression",
        [given("a.tsv", fields={"wav": "a | b"}), given("a.tsv", keep={"a |": "x"})],
    ),
    (uio.from_table, "keep must be expressions with regular", [given("a.tsv", keep=v) for v in ("x", {}, {"a": 3})]),
    (uio.from_table, r"drop: '\(' is not a regular expression", [given("a.tsv", drop={"a": "("})]),
    (uio.from_table, "absent must be one of", [given("a.tsv", absent="skip")]),
    (uio.from_table, "root must be a folder", [given("a.tsv", root=value) for value in ("", 3)]),
    (uio.Table, "paths must be a path", each([], "", 3)),
    (uio.Table, "format must be one of", [given("a", format="xls")]),
    (
        uio.Table,
        "header must be True, False, or the names",
        [given("a", header=h) for h in ("ab", (), ("a", "a"), (1,))],
    ),
    (uio.Table, "separator must be what stands between", [given("a", separator=s) for s in ("", "\n")]),
    (uio.Table, "one character each", [given("a", separator="::", quoted=True), given("a", escape="ab")]),
    (uio.Table, "Python has no encoding 'utf9'", [given("a", encoding="utf9")]),
    (uio.Table, "join must be tables that have on=", [given("a", join=uio.Table("b"))]),
    (uio.Table, "on must be one expression, or two", [given("a", on="a = b = c")]),
    (
        uio.from_text,
        "tolerance or longer works on wav, and from_text reads txt: name the files of wav, too",
        [given("x", tolerance=1), given("x", longer="trim")],
    ),
    (uio.list_files, "tolerance and longer are about audio, .*; give them to from_raw_list", [given("x", tolerance=1)]),
    (uio.from_tar_index, "verify must be 'crc' or None, not 'md5'", [given("x.list", verify="md5")]),
    (uio.from_shard_list, "verify must be 'crc' or None", [given("x.list", verify="sha")]),
    (
        uio.from_config,
        r"^config\.sources\[0\]\.path: the type raw_list has no 'path'",
        [given({"sources": [{"type": "raw_list", "path": "x"}]})],
    ),
    (
        uio.from_config,
        r"^config\.sources\[0\]\.type: type has no 'txt_pair'",
        [given({"sources": [{"type": "txt_pair"}]})],
    ),
    *(
        (make, words, [given(**options)])
        for make in (tars, parquet)
        for words, options in (
            ("storage_options must be a dict", {"storage_options": "key"}),
            ("cache must be a local folder", {"cache": "s3://bucket/cache"}),
            ("cache_size must be bytes, or a size like '200GB'", {"cache": "x", "cache_size": "lots"}),
            ("cache_size must be", {"cache": "x", "cache_size": 0}),
            ("resampled must be True or False, not 1; choose one", {"resampled": 1}),
            ("tolerance must be seconds, 0 or more, or None, not -0.1; as in tolerance=0.5", {"tolerance": -0.1}),
            ("tolerance must be seconds", {"tolerance": "0.5"}),
            ("longer must be 'fail' or 'trim', not 'cut'; choose one", {"longer": "cut"}),
        )
    ),
    # What is run
    (uio.Failures, "on_error must be 'skip' or 'raise', not 'ignore'", [given(on_error="ignore")]),
    (uio.Failures, "max_failures must be a whole number, not -1", [given(max_failures=-1)]),
    (uio.Failures, "max_consecutive_failures must be a whole number, not True", [given(max_consecutive_failures=True)]),
    (uio.Loader(RAW).set_epoch, "epoch", each(-1, 1.5, "1", None, True)),
    (uio.Loader(RAW).skip, "skip", each(-1, 1.5, "3", range(-1, 3), range(5, 2, -1))),
    (RAW.as_dataset, "failures must be 'skip', 'raise'", [given(failures="ignore")]),
]
# Calls of which the message has the last value
VALUES: list[tuple[Callable[..., Any], list[Arguments]]] = [
    (RAW.batch, each(0, -3, 2.5, "16", None, True)),
    (RAW.dynamic_batch, each(0, "12000")),
    (RAW.bucket_batch, [given([10], [1]), given([10], [1, 0]), *(given(max_frames=v) for v in (0, "100"))]),
    (RAW.bucket_batch, [given(max_frames=100, num_buckets=0), given(max_frames=100, num_buckets=2.5)]),
    (RAW.bucket_batch, [given(max_frames=100, max_wait=0)]),
    (RAW.bucket_batch, [given(max_frames=100, bucket_boundaries=v) for v in ([20, 10], [0, 10], ["a"], 100)]),
    (RAW.shuffle, each(0, 1.5)),
    (RAW.sort, each(0, "500")),
    (RAW.decode_audio, each(-1, "")),
    (RAW.resample, each(0, 16_000.0, "16k")),
    (RAW.speed_perturb, each([], [0.0], [1.0, -1.0], [NAN], ["0.9"], 0.9)),
    (RAW.fbank, each(0, "80", 80.5)),
    (RAW.fbank, [given(frame_length=0), given(frame_shift=-10), given(frame_shift=0.01, frame_length=0.025)]),
    (RAW.fbank, [given(frame_length=0.025), given(dither=-0.1), given(dither="0.1"), given(window_type="hann")]),
    (RAW.mfcc, [given(frame_shift=0.01)]),
    (RAW.spec_aug, [given(num_t_mask=-1), given(num_t_mask=1.5), given(max_t=0), given(max_t="50"), given(max_f=0)]),
    (RAW.filter, [given(10), given(min_frames="10"), given(max_frames=None), given(max_frames=NAN)]),
    (RAW.map, [given(None), given("upper"), given(list, length=3), given(list, length="equal")]),
    (RAW.flat_map, each([1])),
    (RAW.tokenize, each("bpe.model", None)),
    (RAW.through, each(list)),
    (SHARDS.load_from_tar, [given(grouping="kaldi")]),
    (uio.list_files, each([])),
]
IN_AN_ORDER: list[tuple[Callable[[], Any], str]] = [
    (lambda: AUDIO.fbank().volume_perturb(), "volume_perturb works on audio, but fbank has already turned"),
    (lambda: AUDIO.fbank().add_noise("n.list"), "add_noise works on audio"),
    (lambda: AUDIO.mfcc(num_ceps=13).shuffle(9).speed_perturb(), "speed_perturb works on audio, but mfcc"),
    (lambda: AUDIO.fbank().fbank(), "fbank computes features, but fbank before it has already done so: remove one$"),
    (
        lambda: AUDIO.spec_aug().fbank(),
        "spec_aug works on feat, but fbank creates it only later: put fbank before spec_aug, or remove one",
    ),
    (lambda: AUDIO.fbank().dynamic_batch(max_samples=10**6), "max_samples counts samples of waveforms"),
    (lambda: AUDIO.fbank().bucket_batch(max_samples=10**6), "max_samples counts samples of waveforms"),
    (
        lambda: AUDIO.fbank(20).resample(16_000),
        "resample works on audio, but fbank has already turned it into features",
    ),
    (lambda: AUDIO.mono(), "decode_audio keeps only channel 0 already"),
    (lambda: AUDIO.spec_aug(max_x=3), r"spec_aug: got an unexpected keyword argument 'max_x'; it takes num_t_mask"),
    (lambda: RAW.filter(longest=10), "'longest'; it takes function, min_frames, max_frames"),
    (lambda: AUDIO.fbank(8).random_crop(max_seconds=0.1), "max_seconds crops waveforms, but there are features here"),
    (lambda: AUDIO.batch(2).map(code_points, length="same"), "batch"),
    (lambda: AUDIO.batch(2).pad().map(code_points, length="same"), "batch"),
    (lambda: SHARDS.decode_audio().fbank().ctc_filter(), r"put \.tokenize"),
    (lambda: TOUCH.choose_text(["txt"]).segments(), "put segments before choose_text"),
    (lambda: uio.mix([TEXTS]).sharding_filter(), "second sharding_filter"),
    (lambda: uio.mix([TEXTS.through(uio.Node), TEXTS, TEXTS.batch(2)]), "must give samples as other sources do"),
    (lambda: RAW.pad(), r"pad works on batchs?(es)?.*batch\("),
    (lambda: uio.Loader(uio.list_files("x")), "load_from_raw"),
    (lambda: uio.Loader(uio.list_files("x").open_files()), "load_from_tar"),
    *(
        (lambda name=name: getattr(RAW.batch(), name)(*([list] if name == "flat_map" else [])), f"move {name} before")
        for name in ("shuffle", "sort", "filter", "fbank", "batch", "flat_map")
    ),
    (lambda: RAW.batch().pad().sort(), "sort"),
    (lambda: RAW.batch().pad().fbank(), "fbank"),
    (lambda: RAW.batch().pad().pad(), "pad"),
    (lambda: uio.list_files("x").decode_audio(), "load_from_tar"),
    (lambda: uio.list_files("x").load_from_tar(), "open_files"),
    (lambda: uio.list_files("x").open_files().load_from_raw(), "load_from_raw"),
    (lambda: uio.list_files("x").open_files().decode_audio(), "load_from_tar"),
    (lambda: SHARDS.load_from_tar(), "load_from_tar"),
    (lambda: RAW.open_files(), "open_files"),
    (lambda: uio.list_files("x").open_files().sort(), "sort"),
    (lambda: RAW.batch().sharding_filter(), "sharding_filter"),
    # These fail when they are run.
    (
        lambda: list(uio.Loader(uio.from_iterable(ITEMS).stack().dynamic_batch(99))),
        r"stack works on features: put \.fbank\(…\) before it",
    ),
    (
        lambda: list(uio.Loader(uio.from_iterable(ITEMS).fbank(8, of="prompt").concat(max_seconds=9))),
        "concat joins the usual audio and text only, but fbank works on 'prompt'",
    ),
    *(
        (lambda then=then: list(uio.Loader(then(RAW_TEXTS))), "no length")
        for then in (lambda p: p.filter(min_frames=1), lambda p: p.dynamic_batch(5))
    ),
    (lambda: list(uio.Loader(uio.list_files(__file__).open_files().flat_map(lambda file, rng: []))), "rng"),
    (
        lambda: list(uio.Loader(uio.from_iterable([ITEMS[0], ("wav", "txt")]))),
        r"item 1 must be a mapping .*, not tuple",
    ),
]
WITH_THE_REMEDY: list[tuple[Callable[[], Any], str]] = [
    (lambda: AUDIO.clip(gain_db=3), r"gain_db must be \(lowest, highest\), within -100 to 100 dB, not 3; try \(3"),
    (lambda: AUDIO.lowpass(4000), r"cutoff must be \(lowest, highest\).* Hz, not 4000; try \(4000, 4000\)"),
    (lambda: AUDIO.loudness(target=-20), r"target must be \(lowest, highest\).* LUFS, not -20; try \(-20, -20\)"),
    (lambda: AUDIO.pitch_shift([1]), r"semitones must be .*, not \[1\]; give two numbers, the lower one first"),
    (lambda: AUDIO.codec(compression_level=0.5), r"compression_level must be .*; try \(0.5, 0.5\)"),
    (lambda: AUDIO.add_noise("n.list", snr=5), r"snr must be .*; try \(5, 5\)"),
    (lambda: AUDIO.add_noise("n.list", part=0.5), r"part must be .*; try \(0.5, 0.5\)"),
    (lambda: AUDIO.reverberate(rt60=0.3), r"rt60 must be .*; try \(0.3, 0.3\)"),
]


@pytest.mark.parametrize(
    ("make", "words", "wrong"), [(make, words, call) for make, words, calls in WRONG for call in calls]
)
def test_wrong_arguments_are_refused(make: Callable[..., Any], words: str, wrong: Arguments) -> None:
    args, options = wrong
    with pytest.raises(uio.PipelineError, match=words):
        make(*args, **options)


@pytest.mark.parametrize(("make", "wrong"), [(make, call) for make, calls in VALUES for call in calls])
def test_a_wrong_value_is_told_with_its_stage_and_a_remedy(make: Callable[..., Any], wrong: Arguments) -> None:
    args, options = wrong
    with pytest.raises(uio.PipelineError) as error:
        make(*args, **options)
    stage, _, message = str(error.value).partition(": ")
    assert stage == make.__name__
    assert str([*args, *options.values()][-1]).strip("[]()") in message
    assert ";" in message or ":" in message, "a remedy is missing"
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(("make", "words"), IN_AN_ORDER)
def test_stages_that_do_not_fit_together_are_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(uio.PipelineError, match=words):
        make()


@pytest.mark.parametrize(("make", "words"), WITH_THE_REMEDY)
def test_pairs_are_refused_with_their_bounds_and_the_remedy(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(uio.PipelineError, match=words):
        make()


def test_what_a_function_of_the_users_may_have_done_is_not_judged() -> None:
    def again(sample: uio.Sample) -> uio.Sample:
        return sample

    features = uio.from_shard_list("features.list").spec_aug().deltas().global_cmvn("cmvn").batch(4).pad()
    graphs = (AUDIO.fbank().map(again).volume_perturb().fbank(), features, AUDIO.map(again).mono())
    assert [graph.stages[-1].name for graph in graphs] == ["fbank", "pad", "mono"]
