"""Tables that name audio by paths: fields, planned lengths, rows that are wanted, joined tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tones import RATE, tone, wav_bytes

import uio_pipes as uio

HEADER = "client_id\tpath\tsentence\tsubsets\tlength_ms\n"


def write(root: Path, count: int = 6, *, lengths: dict[int, int] | None = None) -> Path:
    """A table as Common Voice has it: clips of a second and some samples each, a tone of its own in each."""
    (root / "clips").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(count):
        (root / "clips" / f"c{number}.wav").write_bytes(wav_bytes(tone(RATE + 160 * number, number)))
        length = (lengths or {}).get(number, 1000 + 10 * number)
        rows.append(f'speaker{number % 2}\tc{number}.wav\tsaid "{number}\t{"SML"[number % 3]}\t{length}\n')
    path = root / "train.tsv"
    path.write_text(HEADER + "".join(rows))
    return path


FIELDS = {"wav": "clips/{path}", "txt": "sentence"}


def samples(pipeline: uio.Pipeline, **options: Any) -> list[dict[str, Any]]:
    loader = uio.Loader(pipeline.batch(1), **{"failures": "raise", **options})
    return [dict(sample) for batch in loader for sample in batch]


def test_fields_are_expressions_and_audio_starts_at_the_table(tmp_path: Path) -> None:
    names = {
        **FIELDS,
        "speaker": "client_id | [-1:]",
        "lang": "'pl'",
        "file": "table | name",
        "duration": "length_ms | ms",
    }
    found = samples(uio.from_table(write(tmp_path), fields=names).decode_audio())
    assert [sample["key"] for sample in found] == [f"c{number}" for number in range(6)]
    for number, sample in enumerate(found):
        wav = np.asarray(sample["wav"][0]) * 32768
        assert np.array_equal(wav, tone(RATE + 160 * number, number))
        del sample["wav"]
    assert found[3] == {
        "key": "c3", "txt": 'said "3', "speaker": "1", "lang": "pl", "file": "train.tsv", "duration": 1.03,
        "sample_rate": RATE,
    }  # fmt: skip


def test_without_fields_the_columns_are_the_fields(tmp_path: Path) -> None:
    write(tmp_path)
    rows = [{"wav": f"clips/c{number}.wav", "txt": f"t{number}", "mood": None, "age": 30} for number in range(2)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = samples(uio.from_table(tmp_path / "a.jsonl"))
    assert [(sample["key"], sample["txt"], sample["age"], "mood" in sample) for sample in found] == [
        ("c0", "t0", 30, False),
        ("c1", "t1", 30, False),
    ]


def test_rows_may_be_given_in_python(tmp_path: Path) -> None:
    write(tmp_path)
    rows = [{"audio": f"clips/c{number}.wav", "info": {"texts": ["a", f"b{number}"]}} for number in range(3)]
    pipeline = uio.from_table(rows, fields={"wav": "audio", "txt": "info.texts.1"}, root=tmp_path)
    assert [(sample["key"], sample["txt"]) for sample in samples(pipeline)] == [
        ("c0", "b0"),
        ("c1", "b1"),
        ("c2", "b2"),
    ]


def test_the_epoch_has_as_many_batches_as_the_table_tells(tmp_path: Path) -> None:
    pipeline = uio.from_table(write(tmp_path, 7), fields=FIELDS)
    assert len(uio.Loader(pipeline.batch(2))) == 4
    kept = uio.from_table(write(tmp_path, 7), fields=FIELDS, keep={"subsets": "S"})
    assert len(uio.Loader(kept.batch(2))) == 2  # found by planning


# Segments and lengths


def test_a_segment_is_that_part_and_its_key_has_the_start(tmp_path: Path) -> None:
    write(tmp_path, 1)
    rows = [
        {"wav": "clips/c0.wav", "start": "0.25", "end": "0.5"},
        {"wav": "clips/c0.wav", "start": 0.5, "duration": 0.125},
        {"wav": "clips/c0.wav", "start": 0.75},
    ]
    names = {"wav": "wav", "start": "start", "end": "end or ''", "duration": "duration or ''"}
    found = samples(uio.from_table(rows, root=tmp_path, fields=names).decode_audio())
    assert [sample["key"] for sample in found] == ["c0-00000250", "c0-00000500", "c0-00000750"]
    for sample, (first, last) in zip(found, [(0.25, 0.5), (0.5, 0.625), (0.75, 1)], strict=True):
        part = tone(RATE, 0)[int(first * RATE) : int(last * RATE)]
        assert np.array_equal(np.asarray(sample["wav"][0]) * 32768, part)


@pytest.mark.parametrize(("short", "lost"), [(0, 0), (10, 0), (50, 0), (70, 1)])
def test_a_declared_duration_may_be_50_ms_too_short(tmp_path: Path, short: int, lost: int) -> None:
    table = write(tmp_path, 2, lengths={1: 1010 - short})
    pipeline = uio.from_table(table, fields={**FIELDS, "duration": "length_ms | ms"}).decode_audio().batch(1)
    loader = uio.Loader(pipeline)
    assert len([batch for batch in loader if len(batch)]) == 2 - lost
    assert loader.stats().skipped == ({"length_mismatch": 1} if lost else {})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"start": 2, "end": 1}, "bad_segment"),
        ({"start": "soon"}, "bad_segment"),
        ({"duration": "long"}, "bad_duration"),
        ({"duration": -1}, "bad_duration"),
        ({"wav": ""}, "missing_audio"),
        ({"wav": None}, "missing_audio"),
        ({"txt": None}, "missing_text"),
    ],
)
def test_a_row_that_cannot_be_used_is_counted(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    write(tmp_path, 1)
    good = {"wav": "clips/c0.wav", "txt": "a"}
    rows = [{**good, "start": None, "end": None, "duration": None}, {**good, **row}]
    names = {name: name for name in ("wav", "txt", "start", "end", "duration")}
    loader = uio.Loader(uio.from_table(rows, root=tmp_path, fields=names).batch(1))
    assert [batch[0]["key"] for batch in loader] == ["c0"]
    assert loader.stats().skipped == {reason: 1}


# Audio that is not there


def test_audio_that_is_not_there_is_counted_with_its_places_unless_it_need_not_be_there(tmp_path: Path) -> None:
    table = write(tmp_path)
    (tmp_path / "clips" / "c2.wav").unlink()
    loader = uio.Loader(uio.from_table(table, fields=FIELDS).decode_audio().batch(1))
    assert len([batch for batch in loader if len(batch)]) == 5
    assert loader.stats().skipped == {"no_audio": 1}
    with pytest.raises(uio.DataError, match=r"no such file \(.*/clips/c2\.wav and clips/c2\.wav\).*root="):
        samples(uio.from_table(table, fields=FIELDS).decode_audio())
    loader = uio.Loader(uio.from_table(table, fields=FIELDS, absent="not_kept").decode_audio().batch(1))
    assert len([batch for batch in loader if len(batch)]) == 5
    assert (loader.stats().skipped, loader.stats().failures) == ({"not_kept": 1}, 0)


def test_paths_start_at_the_root_or_at_the_table_or_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write(tmp_path / "data", 1)
    moved = tmp_path / "elsewhere" / "train.tsv"
    moved.parent.mkdir()
    moved.write_text(table.read_text())
    assert samples(uio.from_table(moved, fields=FIELDS, root=tmp_path / "data").decode_audio())
    monkeypatch.chdir(tmp_path / "data")
    assert samples(uio.from_table(moved, fields=FIELDS).decode_audio())
    whole = {**FIELDS, "wav": f"{tmp_path}/data/clips/{{path}}"}
    assert samples(uio.from_table(moved, fields=whole).decode_audio())


# Rows that are wanted


def test_rows_are_kept_by_values_or_items_of_lists(tmp_path: Path) -> None:
    write(tmp_path)
    rows = [{"wav": f"clips/c{n}.wav", "sets": ["{XL}", "{M}"][: n % 2 + 1], "txt": f"t{n}"} for n in range(6)]
    pipeline = uio.from_table(rows, root=tmp_path, keep={"sets": r"\{M\}"}, drop={"txt": "t[23]", "wav | stem": "c5"})
    loader = uio.Loader(pipeline.batch(1))
    assert [batch[0]["key"] for batch in loader] == ["c1"]
    assert (loader.stats().skipped, loader.stats().failures) == ({"not_kept": 3, "dropped": 2}, 0)
    silent = uio.from_table(
        [*rows, {"wav": "clips/c0.wav", "txt": "<x> "}], root=tmp_path, drop={"txt | s/<.*?>// | strip": ""}
    )
    assert len(samples(silent)) == 6


# Joined tables


def test_a_second_table_completes_the_rows(tmp_path: Path) -> None:
    table = write(tmp_path)
    (tmp_path / "durations.tsv").write_text("clip\tlong\tsentence\n" + "".join(f"c{n}.wav\t{n}\tx\n" for n in range(5)))
    (tmp_path / "speakers.csv").write_text('id;sex\n"speaker1";f\nspeaker0;m\n')
    joined = uio.Table(
        table,
        join=[
            uio.Table(tmp_path / "durations.tsv", on="path = clip"),
            uio.Table(tmp_path / "speakers.csv", separator=";", on="client_id = id"),
        ],
    )
    pipeline = uio.from_table(joined, fields={**FIELDS, "long": "long", "sex": "sex"}, keep={"long": ".*"})
    found = samples(pipeline)
    assert [(s["key"], s["txt"], s["long"], s["sex"]) for s in found] == [
        (f"c{n}", f'said "{n}', str(n), "mf"[n % 2]) for n in range(5)
    ]


def test_an_utterance_has_not_the_column_that_says_the_same_again(tmp_path: Path) -> None:
    clip = write(tmp_path).with_name("clips") / "c0.wav"
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(f"wav,id,ms\n{clip},a,0\n")
    other.write_text("key,name,ms,more\na,a,1,x\n")
    for on, columns in (("id = name", {"key"}), ("id = key", {"key", "name"}), ("id = name | strip", {"key", "name"})):
        (found,) = samples(uio.from_table(uio.Table(one, join=uio.Table(other, on=on))))
        assert {*found} - {"sample_rate"} == {"wav", "id", "ms", "more", *columns}
        assert (found["ms"], found["more"]) == ("0", "x")


# What is said of the table


def test_all_rows_of_a_table_have_its_constants(tmp_path: Path) -> None:
    tables = [uio.Table(write(tmp_path / lang), constants={"lang": lang, "path": "c1.wav"}) for lang in ("pl", "de")]
    fields = {**FIELDS, "lang": "lang", "duration": "length_ms | ms"}
    pipeline = uio.from_table(tables, fields=fields, keep={"lang": "pl|de"}, shuffle=True)
    found = sorted((sample["lang"], sample["key"], sample["txt"]) for sample in samples(pipeline))
    assert found == sorted((lang, "c1", f'said "{number}') for lang in ("pl", "de") for number in range(6))
    assert uio.Table("a.tsv", constants={"lang": "pl"}) == uio.Table("a.tsv", constants=[("lang", "pl")])


def test_a_null_on_the_way_may_be_something_in_later_rows(tmp_path: Path) -> None:
    write(tmp_path, 1)
    rows = [{"wav": "clips/c0.wav", "info": None}, {"wav": "clips/c0.wav", "info": {"who": "x"}}]
    assert [
        s.get("speaker")
        for s in samples(uio.from_table(rows, root=tmp_path, fields={"wav": "wav", "speaker": "info.who"}))
    ] == [None, "x"]
    with pytest.raises(uio.ListError, match=r"asks for 'info\.whom'"):
        samples(uio.from_table(rows[1:], root=tmp_path, fields={"wav": "wav", "speaker": "info.whom"}))


def test_what_is_equal_in_joined_tables_is_part_of_what_a_state_fits(tmp_path: Path) -> None:
    table, other = write(tmp_path), tmp_path / "more.tsv"
    other.write_text("a\tb\nc0.wav\tspeaker0\n")
    of = [
        uio.from_table(uio.Table(table, join=uio.Table(other, on=on)), fields=FIELDS)._list_fingerprint()
        for on in ("path = a", "client_id = b")
    ]
    assert of[0] != of[1]


def test_without_a_transcript_tokenize_is_refused(tmp_path: Path) -> None:
    pipeline = uio.from_table(write(tmp_path), fields={"wav": "clips/{path}"})
    with pytest.raises(uio.PipelineError, match="list_table makes it optional"):
        pipeline.tokenize(uio.CharTokenizer({"a": 0, "<unk>": 1}))


def test_tables_of_several_forms_are_one(tmp_path: Path) -> None:
    table = write(tmp_path, 2)
    (tmp_path / "more.csv").write_text('path,sentence\nc0.wav,"a, b"\n')
    (tmp_path / "trans.txt").write_text("c1.wav two words\n")
    tables = [
        table,
        tmp_path / "more.csv",
        uio.Table(tmp_path / "trans.txt", separator=" ", header=("name", "sentence")),
    ]
    names = {"wav": "clips/{path or name}", "txt": "sentence"}
    assert [sample["txt"] for sample in samples(uio.from_table(tables, fields=names))] == [
        'said "0', 'said "1', "a, b", "two words",
    ]  # fmt: skip


def test_a_configuration_takes_tables(tmp_path: Path) -> None:
    source = {"type": "table", "table": str(write(tmp_path)), "fields": FIELDS, "keep": {"subsets": "S"}}
    assert [s["key"] for s in samples(uio.from_config({"sources": [source]}))] == ["c0", "c3"]


def test_of_a_table_the_description_shows_what_was_said() -> None:
    described = str(uio.from_table(uio.Table("t.tsv", separator="|"), root="a"))
    assert described.splitlines()[0] == "list_table(Table('t.tsv', separator='|'), root='a')"


@pytest.mark.parametrize(
    ("more", "same"),
    [({}, True), ({"key": "{file | folder | name}-{file | stem}"}, False), ({"start": "from"}, False)],
    ids=["names of files", "keys", "segments"],
)
def test_names_of_files_that_recur_are_told(caplog: pytest.LogCaptureFixture, more: dict[str, str], same: bool) -> None:
    rows = [{"file": f"s{speaker}/0001.wav", "words": "x", "from": str(speaker)} for speaker in range(3)]
    listing: Any = uio.from_table(rows, fields={"wav": "file", "txt": "words", **more}).stages[0]
    listing.table()
    told = [message for message in caplog.messages if "keys are file names" in message]
    assert len(told) == same
    advice = 'fields={"key": "{file | folder | name}-{file | stem}"}'
    assert not told or told[0].endswith(
        f"s0/0001.wav and s1/0001.wav have the same one, 0001: define another with {advice}"
    )


@pytest.mark.parametrize("named", ["$data_root/c{}.wav", "{{data_root}}/c{}.wav", "${{data_root}}/c{}.wav", "c{}.wav"])
def test_the_lists_of_speechbrain(tmp_path: Path, named: str) -> None:
    write(tmp_path, 2)
    rows = {f"utt{n}": {"wav": named.format(n), "length": "1.01", "words": f"said {n}"} for n in range(2)}
    (tmp_path / "train.json").write_text(json.dumps(rows))
    fields = {"key": "key", "wav": "wav", "txt": "words", "duration": "length"}
    table = uio.from_table(tmp_path / "train.json", root=tmp_path / "clips", fields=fields)
    found = samples(table.decode_audio())
    assert [(sample["key"], sample["txt"], sample["wav"].shape[1]) for sample in found] == [
        (f"utt{n}", f"said {n}", RATE + 160 * n) for n in range(2)
    ]
    missing = uio.from_table(tmp_path / "train.json", root=tmp_path, fields=fields)
    with pytest.raises(uio.DataError, match=r"fetch it, say where it is by fields .*'\), or correct the row"):
        samples(missing.decode_audio())


@pytest.mark.parametrize(("start", "end"), [("0.25", "0.75"), ("0:00:00.25", "00:00:00,75"), ("0:00.25", "00:0.75")])
def test_times_may_be_written_as_on_a_clock(tmp_path: Path, start: str, end: str) -> None:
    write(tmp_path, 1)
    rows = [{"wav": "clips/c0.wav", "txt": "a", "start": start, "end": end}]
    (sample,) = samples(uio.from_table(rows, root=tmp_path).decode_audio())
    assert (sample["start"], sample["end"], sample["wav"].shape[1]) == (0.25, 0.75, RATE // 2)
