"""Fingerprints: a saved state fits only a graph that gives the same."""

import copy
from dataclasses import fields
from typing import Any

import pytest
from contract import all_stages, example_of

import uio_pipes as uio
from uio_pipes.core.stage import Stage

# Fields that no fingerprint names, by the stage's name, with the reason. Those that `repr` leaves out say how files are
# reached (options of a file system, a cache), which decides no result.
BY_CONTENT = "the content has a fingerprint of its own, so that data can move"
NOT_NAMED = {
    ("cache", "folder"): "results are the same with any",
    ("cache", "read_only"): "results are the same",
    ("cache", "size"): "results are the same",
    ("encoded", "folder"): "by= says which model made what is there",
    ("exclude", "path"): BY_CONTENT,
    ("from_tar_index", "paths"): BY_CONTENT,
    ("from_tar_index", "indexes"): BY_CONTENT,
    ("global_cmvn", "stats"): "a hash of the numbers is named",
    ("list_conversations", "paths"): BY_CONTENT,
    ("list_conversations", "root"): "it says where the files are",
    ("list_conversations", "tars"): BY_CONTENT,
    ("list_cuts", "paths"): BY_CONTENT,
    ("list_cuts", "root"): "it says where the files are",
    ("list_files", "paths"): BY_CONTENT,
    ("list_indexed", "dirs"): BY_CONTENT,
    ("list_indexed", "indexes"): "it says where checksums are",
    ("list_indexed", "metainfo"): BY_CONTENT,
    ("list_indexed", "verify"): "a state may be loaded with it and without it",
    ("list_jsonl", "paths"): BY_CONTENT,
    ("list_jsonl", "root"): "it says where the files are",
    ("list_kaldi", "scp"): BY_CONTENT,
    ("list_kaldi", "segments"): BY_CONTENT,
    ("list_kaldi", "text"): BY_CONTENT,
    ("list_kaldi", "utt2spk"): BY_CONTENT,
    ("list_nemo", "paths"): BY_CONTENT,
    ("list_nemo", "root"): "it says where the files are",
    ("list_nemo", "tars"): BY_CONTENT,
    ("list_parquet", "paths"): BY_CONTENT,
    ("list_shar", "sources"): BY_CONTENT,
    ("list_shar", "unread"): "it follows from the fields of load_from_shar",
    ("list_table", "archives"): BY_CONTENT,
    ("list_table", "root"): "it says where the files are",
    ("list_table", "tables"): BY_CONTENT,
    ("list_text", "paths"): BY_CONTENT,
    ("list_text", "root"): "it says where the files are",
    ("overlay", "path"): BY_CONTENT,
    ("speaker", "table"): "a hash of the numbers is named",
    ("timeline", "source"): BY_CONTENT,
    ("timeline", "uem"): BY_CONTENT,
}


def another(value: Any) -> Any:
    """A value other than this one, of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, (str, tuple)):
        return value + type(value)("x")
    if isinstance(value, dict):
        return {**value, "x": next(iter(value.values()), "x")}
    return "x"


@pytest.mark.parametrize("stage", all_stages(), ids=lambda stage: stage.__name__)
def test_every_field_that_decides_is_in_the_fingerprint(stage: type[Stage], pipelines: list[uio.Pipeline]) -> None:
    one = next(s for s in example_of(stage, pipelines).stages if type(s) is stage)
    same = [
        field.name
        for field in fields(one)
        if field.repr and changed(one, field.name).describe(stable=True) == one.describe(stable=True)
    ]
    assert same == [field.name for field in fields(one) if (one.name, field.name) in NOT_NAMED]


def changed(stage: Stage, name: str) -> Stage:
    """``stage`` with another value of a field, which need not make sense."""
    other = copy.copy(stage)
    object.__setattr__(other, name, another(getattr(stage, name)))
    return other
