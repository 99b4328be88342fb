"""``dataset_conf``: every key of WeNet's, its default and kind, and what is said to a wrong one."""

import copy
import inspect
from typing import Any

import pytest
from yamls import YAMLS, dataset_conf

import uio_pipes as uio
from uio_pipes.core.stage import Stage
from uio_pipes.wenet import KEYS, LIST_STEPS, RENAMED, STEPS, read_conf

TOKENIZER = uio.CharTokenizer({"<unk>": 0, "文": 1})


def conf_of(name: str, value: Any) -> dict[str, Any]:
    """A conf with this one key; ``block.key`` is a key in a block."""
    block, _, key = name.rpartition(".")
    return {block: {key: value}} if block else {key: value}


def stages(conf: dict[str, Any], **given: Any) -> dict[str, Stage]:
    arguments = {"data_type": "shard", "data_list": "x.list", "tokenizer": TOKENIZER, **given}
    return {stage.name: stage for stage in uio.wenet_dataset(conf=conf, **arguments).pipeline.stages}


# What WeNet applies, and in which order

DEFAULTS = {
    "cycle": 1,
    "list_shuffle": True,
    "list_shuffle_conf.shuffle_size": None,
    "singal_channel_conf.channel": 0,
    "speaker_conf.speaker_table_path": None,
    "filter_conf.max_length": 10240,
    "filter_conf.min_length": 10,
    "filter_conf.token_max_length": 200,
    "filter_conf.token_min_length": 1,
    "filter_conf.min_output_input_ratio": 0.0005,
    "filter_conf.max_output_input_ratio": 1,
    "resample_conf.resample_rate": 16000,
    "speed_perturb": False,
    "speeds": (0.9, 1.0, 1.1),
    "feats_type": "fbank",
    "fbank_conf.num_mel_bins": 23,
    "fbank_conf.frame_length": 25,
    "fbank_conf.frame_shift": 10,
    "fbank_conf.dither": 0.0,
    "fbank_conf.window_type": "povey",
    "mfcc_conf.num_mel_bins": 23,
    "mfcc_conf.frame_length": 25,
    "mfcc_conf.frame_shift": 10,
    "mfcc_conf.dither": 0.0,
    "mfcc_conf.window_type": "povey",
    "mfcc_conf.num_ceps": 40,
    "mfcc_conf.high_freq": 0,
    "mfcc_conf.low_freq": 20,
    "log_mel_spectrogram_conf.n_fft": 400,
    "log_mel_spectrogram_conf.hop_length": 160,
    "log_mel_spectrogram_conf.num_mel_bins": 80,
    "log_mel_spectrogram_conf.padding": 0,
    "log_mel_spectrogram_conf.pad_or_trim": False,
    "log_mel_spectrogram_conf.max_duration": 30,
    "spec_aug": True,
    "spec_aug_conf.num_t_mask": 2,
    "spec_aug_conf.num_f_mask": 2,
    "spec_aug_conf.max_t": 50,
    "spec_aug_conf.max_f": 10,
    "spec_sub": False,
    "spec_sub_conf.max_t": 20,
    "spec_sub_conf.num_t_sub": 3,
    "spec_trim": False,
    "spec_trim_conf.max_t": 20,
    "language_conf.limited_langs": ("zh", "en"),
    "shuffle": True,
    "shuffle_conf.shuffle_size": 1500,
    "sort": True,
    "sort_conf.sort_size": 500,
    "batch_conf.batch_type": "static",
    "batch_conf.batch_size": 16,
    "batch_conf.max_frames_in_batch": 12000,
    "batch_conf.bucket_boundaries": None,
    "batch_conf.bucket_batch_sizes": None,
}


def test_defaults_are_wenets() -> None:
    assert read_conf({}) == DEFAULTS


def test_each_key_goes_to_an_argument_that_its_stage_has() -> None:
    steps = (*LIST_STEPS, *STEPS)
    for step in steps:
        takes = inspect.signature(getattr(uio.Pipeline, step.stage)).parameters
        for key in step.keys:
            assert key.argument in takes, key.name
    assert len(KEYS) == sum(len(s.keys) for s in steps) + len({s.switch.name for s in steps if s.switch})


def test_stages_stand_in_wenets_order() -> None:
    names = " ".join(stages({"cycle": 2, "speed_perturb": True, "spec_sub": True, "spec_trim": True}))
    assert names == (
        "list_files repeat sharding_filter open_files load_from_tar decode_audio tokenize filter resample "
        "speed_perturb fbank spec_aug spec_sub spec_trim language shuffle sort batch pad"
    )


def test_a_raw_list_and_no_tokenizer() -> None:
    off = {"shuffle": False, "sort": False, "spec_aug": False}
    names = " ".join(stages(off, data_type="raw", tokenizer=None))
    assert names == "list_files sharding_filter load_from_raw decode_audio filter resample fbank language batch pad"


CHANGED: list[tuple[str, Any, str, str, Any]] = [
    ("cycle", 3, "repeat", "times", 3),
    ("cycle", -1, "repeat", "times", -1),
    ("list_shuffle", False, "list_files", "shuffle", False),
    ("singal_channel_conf.channel", 1, "decode_audio", "channel", 1),
    ("filter_conf.max_length", 40960, "filter", "max_frames", 40960),
    ("filter_conf.min_length", 0, "filter", "min_frames", 0),
    ("filter_conf.token_max_length", 30, "filter", "token_max_length", 30),
    ("filter_conf.token_min_length", 2, "filter", "token_min_length", 2),
    ("filter_conf.min_output_input_ratio", 0.01, "filter", "min_output_input_ratio", 0.01),
    ("filter_conf.max_output_input_ratio", 0.25, "filter", "max_output_input_ratio", 0.25),
    ("resample_conf.resample_rate", 8000, "resample", "resample_rate", 8000),
    ("fbank_conf.num_mel_bins", 80, "fbank", "num_mel_bins", 80),
    ("fbank_conf.frame_length", 32, "fbank", "frame_length", 32),
    ("fbank_conf.frame_shift", 12.5, "fbank", "frame_shift", 12.5),
    ("fbank_conf.dither", 1.0, "fbank", "dither", 1.0),
    ("fbank_conf.window_type", "hamming", "fbank", "window_type", "hamming"),
    ("spec_aug_conf.num_t_mask", 3, "spec_aug", "num_t_mask", 3),
    ("spec_aug_conf.num_f_mask", 0, "spec_aug", "num_f_mask", 0),
    ("spec_aug_conf.max_t", 60, "spec_aug", "max_t", 60),
    ("spec_aug_conf.max_f", 30, "spec_aug", "max_f", 30),
    ("language_conf.limited_langs", ["en", "ja"], "language", "limited_langs", ("en", "ja")),
    ("shuffle_conf.shuffle_size", 5000, "shuffle", "shuffle_size", 5000),
    ("sort_conf.sort_size", 1000, "sort", "sort_size", 1000),
    ("batch_conf.batch_size", 32, "batch", "batch_size", 32),
]


@pytest.mark.parametrize(("name", "value", "stage", "argument", "expected"), CHANGED)
def test_a_key_changes_its_stage(name: str, value: Any, stage: str, argument: str, expected: Any) -> None:
    assert getattr(stages(conf_of(name, value))[stage], argument) == expected


SWITCHED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"speed_perturb": True, "speeds": [0.8, 1.2]}, "speed_perturb", {"speeds": (0.8, 1.2)}),
    ({"feats_type": "mfcc", "mfcc_conf": {"num_mel_bins": 40, "num_ceps": 20}}, "mfcc", {"num_ceps": 20}),
    ({"feats_type": "mfcc", "mfcc_conf": {"num_mel_bins": 40, "low_freq": 60, "high_freq": 7000}}, "mfcc",
     {"num_ceps": 40, "low_freq": 60, "high_freq": 7000}),
    ({"feats_type": "log_mel_spectrogram", "log_mel_spectrogram_conf": {"num_mel_bins": 128, "pad_or_trim": True}},
     "log_mel_spectrogram", {"n_fft": 400, "num_mel_bins": 128, "pad_or_trim": True, "max_duration": 30}),
    ({"spec_sub": True, "spec_sub_conf": {"max_t": 30}}, "spec_sub", {"max_t": 30, "num_t_sub": 3}),
    ({"spec_trim": True, "spec_trim_conf": {"max_t": 40}}, "spec_trim", {"max_t": 40}),
    ({"batch_conf": {"batch_type": "dynamic"}}, "dynamic_batch", {"max_frames": 12000}),
    ({"batch_conf": {"batch_type": "dynamic", "max_frames_in_batch": 9000}}, "dynamic_batch", {"max_frames": 9000}),
    ({"batch_conf": {"batch_type": "bucket", "bucket_boundaries": [500, 900], "bucket_batch_sizes": [8, 4, 2]}},
     "bucket_batch", {"bucket_boundaries": (500, 900), "bucket_batch_sizes": (8, 4, 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("conf", "stage", "expected"), SWITCHED, ids=[s for _, s, _ in SWITCHED])
def test_what_is_switched_on(conf: dict[str, Any], stage: str, expected: dict[str, Any]) -> None:
    found = stages(conf)
    assert {name: getattr(found[stage], name) for name in expected} == expected
    kinds = ("fbank", "mfcc", "log_mel_spectrogram"), ("batch", "dynamic_batch", "bucket_batch")
    assert all(sum(name in found for name in kind) == 1 for kind in kinds)


def test_a_shuffle_size_for_the_list_makes_it_a_buffer() -> None:
    found = stages({"list_shuffle_conf": {"shuffle_size": 40}, "shuffle": False, "cycle": 2})
    assert list(found)[:4] == ["list_files", "shuffle", "repeat", "sharding_filter"]
    assert (found["list_files"].shuffle, found["shuffle"].shuffle_size) == (False, 40)  # type: ignore[attr-defined]
    off = stages({"list_shuffle": False, "list_shuffle_conf": {"shuffle_size": 40}, "shuffle": False})
    assert "shuffle" not in off


def test_a_speaker_table(tmp_path: Any) -> None:
    (tmp_path / "spk.txt").write_text("S1 1\n")
    found = stages({"speaker_conf": {"speaker_table_path": str(tmp_path / "spk.txt")}})
    assert list(found)[4:7] == ["decode_audio", "speaker", "tokenize"]
    assert found["speaker"].numbers == {"S1": 1}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", YAMLS)
def test_conf_is_not_changed(name: str) -> None:
    conf = dataset_conf(name)
    before = copy.deepcopy(conf)
    stages(conf)
    assert conf == before


@pytest.mark.parametrize("block", sorted({name.split(".")[0] for name in KEYS if "." in name}))
def test_an_empty_block_is_all_defaults(block: str) -> None:
    assert read_conf({block: None}) == read_conf({block: {}}) == DEFAULTS


# Wrong keys


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("spec_augs", "spec_aug"),
        ("speed_pertub", "speed_perturb"),
        ("fbank_conf.num_mel_bin", "fbank_conf.num_mel_bins"),
        ("fbank_conf.dithers", "fbank_conf.dither"),
        ("fbank_conf.max_frames_in_batch", "batch_conf.max_frames_in_batch"),
        (
            "num_mel_bins",
            "fbank_conf.num_mel_bins or mfcc_conf.num_mel_bins or log_mel_spectrogram_conf.num_mel_bins",
        ),
        ("signal_channel_conf.channel", "singal_channel_conf.channel"),
        ("filter_config.max_length", "filter_conf.max_length"),
        ("spec_aug_conf.num_mask", "spec_aug_conf.num_t_mask or spec_aug_conf.num_f_mask"),
        ("batch_conf.max_frame_in_batch", "batch_conf.max_frames_in_batch"),
        ("shuffle_size", "list_shuffle_conf.shuffle_size or shuffle_conf.shuffle_size"),
    ],
)
def test_unknown_key_names_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(uio.PipelineError) as error:
        read_conf(conf_of(name, 1))
    assert str(error.value) == f"dataset_conf has no key {name}; the nearest is {nearest}"


@pytest.mark.parametrize("name", KEYS)
def test_any_letter_left_out_is_noticed(name: str) -> None:
    """Also where what is left is like another key."""
    for i in range(len(name)):
        wrong = name[:i] + name[i + 1 :]
        if wrong not in KEYS and wrong not in RENAMED and wrong.strip("."):
            with pytest.raises(uio.PipelineError, match=r"dataset_conf.* (the nearest is|must be)"):
                read_conf(conf_of(wrong, KEYS[name].default))


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"encoder": "conformer", "dataset_conf": {}}, r"conf\['dataset_conf'\]"),
        (None, "as a dict, not None"),
        ({"sort_conf": 500}, r"sort_conf must be a block of keys \(sort_size\), not 500"),
        (
            {"batch_conf": {"batch_size": 4}, "batch_size": 8},
            r"both batch_conf\.batch_size and batch_size.*keep batch_conf",
        ),
        *(
            (conf_of(name, value), rf"dataset_conf\.{name}: .*not supported.*{remedy}")
            for name, value, remedy in [
                ("raw_wav", False, r"KEY\.npy"),
                ("feature_extraction_conf.feature_type", "mfcc", "feats_type"),
                ("feature_extraction_conf.using_pitch", True, "pitch"),
                ("wav_distortion_conf.wav_distortion_rate", 0.3, "volume_perturb"),
                ("speaker", "spk.txt", r"speaker_conf\.speaker_table_path"),
                ("reverb_source", "rir.list", "reverberate"),
                ("noise_lists", ["musan.list"], "add_noise"),
                ("spec_aug_conf.warp_for_time", True, "without warping"),
            ]
        ),
    ],
)
def test_what_is_no_block_of_now_says_what_to_use(conf: Any, says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        read_conf(conf)


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"filter_conf": {"min_length": 50, "max_length": 10}}, r" \(filter_conf\.max_length, filter_conf\.min_length"),
        ({"list_shuffle_conf": {"shuffle_size": 0}}, r" \(list_shuffle_conf\.shuffle_size\)"),
        ({"batch_conf": {"batch_type": "bucket", "bucket_boundaries": [5]}}, r" \(batch_conf\.bucket_boundaries, "),
        ({"batch_conf": {"batch_size": 0}}, r" \(batch_conf\.batch_size\): batch: batch_size must be"),
        ({"feats_type": "mfcc"}, r" \(mfcc_conf\.num_mel_bins, .*num_ceps"),
        # Keys of what is switched off are checked, too.
        ({"spec_sub": False, "spec_sub_conf": {"max_t": "many"}}, r".*spec_sub_conf\.max_t must be a whole number"),
    ],
)
def test_a_value_that_breaks_a_rule_names_the_keys(conf: dict[str, Any], says: str) -> None:
    with pytest.raises(uio.PipelineError, match=rf"dataset_conf{says}"):
        stages(conf)


@pytest.mark.parametrize(
    ("data_type", "tokenizer", "says"),
    [
        *((name, None, r"data_type must be 'raw' or 'shard'") for name in ("tar", "", None)),
        ("raw", "units.txt", "tokenizer must be"),
    ],
)
def test_wrong_data_type_and_tokenizer(data_type: Any, tokenizer: Any, says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        uio.wenet_dataset(data_type, "x", tokenizer, {})


# Wrong values


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("fbank_conf.num_mel_bins", "80", "a whole number"),
        ("fbank_conf.num_mel_bins", 80.5, "a whole number"),
        ("fbank_conf.num_mel_bins", None, "a whole number"),
        ("fbank_conf.dither", "1e-1x", "a number"),
        ("fbank_conf.dither", True, "a number"),
        ("fbank_conf.window_type", 3, "a text"),
        ("spec_aug", "yes", "true or false"),
        ("spec_sub", 1, "true or false"),
        ("sort", None, "true or false"),
        ("cycle", 1.5, "1 or more, or -1 (endless)"),
        ("speeds", 0.9, "a list, each of it a number"),
        ("speeds", ["slow"], "a list, each of it a number"),
        ("feats_type", "plp", "one of fbank, mfcc, log_mel_spectrogram"),
        ("batch_conf.batch_type", "random", "one of static, dynamic, bucket"),
        ("batch_conf.bucket_boundaries", [1.5], "a list, each of it a whole number"),
        ("language_conf.limited_langs", "zh", "a list, each of it a text"),
    ],
)
def test_a_value_of_the_wrong_kind_says_what_is_wanted(name: str, value: Any, what: str) -> None:
    with pytest.raises(uio.PipelineError) as error:
        read_conf(conf_of(name, value))
    assert str(error.value) == f"dataset_conf.{name} must be {what}, not {value!r}"


# Older configurations


def test_older_names_mean_what_they_meant() -> None:
    """WeNet's first configurations: before blocks, with feature_extraction_conf."""
    conf = {
        "raw_wav": True,
        "feature_extraction_conf": {
            "feature_type": "fbank", "mel_bins": 80, "frame_shift": 10, "frame_length": 25, "using_pitch": False,
        },
        "wav_distortion_conf": {"wav_dither": 1.0, "wav_distortion_rate": 0.0, "distortion_methods": []},
        "feature_dither": 0.0,
        "max_length": 40960, "min_length": 0, "token_max_length": 400, "token_min_length": 1,
        "batch_type": "dynamic", "batch_size": 16, "max_frames_in_batch": 9000,
        "spec_aug_conf": {"warp_for_time": False, "num_t_mask": 2},
        "speed_perturb": True,
        "speed_perturb_conf": {"speeds": [0.9, 1.1]},
        "noise_prob": 0.0, "reverb_lmdb_file": None, "speaker": False,
    }  # fmt: skip
    found: Any = stages(conf)
    assert (found["fbank"].num_mel_bins, found["fbank"].dither) == (80, 1.0)
    assert (found["filter"].max_frames, found["filter"].min_frames, found["filter"].token_max_length) == (40960, 0, 400)
    assert found["dynamic_batch"].max_frames == 9000
    assert found["speed_perturb"].speeds == (0.9, 1.1)


@pytest.mark.parametrize("name", ["split_with_space", "syncbn"])
def test_what_wenet_never_reads_is_accepted_with_a_line_in_the_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Five of WeNet's own configurations have these keys among those of the data."""
    conf: dict[str, Any] = {name: True, "batch_conf": {"batch_size": 4}}
    assert stages(conf).keys() == stages({"batch_conf": {"batch_size": 4}}).keys()
    assert f"dataset_conf.{name}: True is ignored" in caplog.text
    assert caplog.text.count("\n") == 1
    caplog.clear()
    read_conf({name: False})
    assert not caplog.text, "nothing is ignored"
    with pytest.raises(uio.PipelineError, match=rf"no key {name}s; the nearest is {name}$"):
        read_conf({f"{name}s": True})
