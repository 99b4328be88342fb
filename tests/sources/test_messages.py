"""What the sources say of data and arguments that they cannot use: the words of their errors, in one table."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import archive_files
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uio_pipes as uio

Files = dict[str, str | bytes]  # in the working directory; a name that ends in / is a folder
NEMO = '{"audio_filepath": "a.wav", "duration": 1.0, "shard_id": 0}\n'
RAW = '{"key": "a", "wav": "a.wav", "txt": "t"}\n'
SCP: Files = {"k/wav.scp": "A a.wav\nB b.wav\n"}
TSV: Files = {"a.tsv": "path\tsentence\tid\n" + "".join(f'{n}.wav\tsaid "{n}\tk{n}\n' for n in range(3))}
JSON: Files = {
    "a.json": '{"dataset": "x", "audios": [{"path": "a.wav", "segments": [{"sid": "s", "text": "a", "begin": 0}]}]}'
}
pq.write_table(pa.table({"audio": pa.array([], pa.binary())}), out := pa.BufferOutputStream())
NO_ROWS = out.getvalue().to_pybytes()
NAMES = {"key": "id", "wav": "path", "txt": "sentence"}


def kaldi(**tables: str) -> Files:
    return {**SCP, **{f"k/{name}": text for name, text in tables.items()}}


def joined(on: str) -> Any:
    return uio.Table("a.tsv", join=uio.Table("b.tsv", on=on))


def table(source: Any = "a.tsv", **options: Any) -> Callable[[], uio.Pipeline]:
    return lambda: uio.from_table(source, **{"fields": NAMES, **options})


B = {**TSV, "b.tsv": "clip\tms\n0.wav\t5\n"}
MESSAGES: list[tuple[Files, Callable[[], uio.Pipeline], str]] = [
    # lists
    ({}, lambda: uio.from_shard_list("none.list"), "cannot read the list none.list: no such file"),
    ({}, lambda: uio.from_shard_list("memory://nothing/none.list"), "memory://nothing/none.list"),
    ({"a": "x.tar\n", "b": "# only\n\n"}, lambda: uio.from_shard_list(["a", "b"]), "the list b is empty"),
    ({"a": b"a.tar\nb.tar\n\xff\xfe\0"}, lambda: uio.from_shard_list("a"), r"not UTF-8 text \(line 3\).*\.tar\.zst"),
    ({"a": b"a.tar\n\0\0"}, lambda: uio.from_shard_list("a"), "a NUL in line 2"),
    ({"s": archive_files.tar_bytes([("a.txt", b"x")])}, lambda: uio.from_shard_list("s"), "s is no"),
    ({"d/": ""}, lambda: uio.from_shard_list("d"), r"d.* is a folder.*\*\.tar"),
    ({"a": "# head\n" + RAW}, lambda: uio.from_shard_list("a"), "a, line 2.*from_raw_list"),
    ({"a": "# head\n\na.tar\n"}, lambda: uio.from_raw_list("a"), "a, line 3.*a.tar.*from_shard_list"),
    ({}, lambda: uio.from_shard_list("x{a,b.list"), "unbalanced braces.*x{a,b.list"),
    ({}, lambda: uio.from_shard_list("xa,b}.list"), "unbalanced braces"),
    ({}, lambda: uio.from_shard_list("{a,{b}.list"), "unbalanced braces"),
    ({}, lambda: uio.from_shard_list("d/*.tar"), r"no file matches 'd/\*\.tar'"),
    ({"a1": "x.tar"}, lambda: uio.from_shard_list("{a,b}*"), r"no file matches 'b\*'.*{a,b}\*"),
    ({}, lambda: uio.from_shard_list("a.tar", text=""), "text must be"),
    ({}, lambda: uio.from_raw_list("a", text=7), "text must be"),  # type: ignore[arg-type]
    ({}, lambda: uio.from_raw_list("a", text="json:said"), "name the field itself, 'said'"),
    ({}, lambda: uio.from_shard_list("a.tar", text="json:text", fields={"txt": "t"}), "both name the transcript"),
    *(
        ({}, lambda fields=fields, start=start: start("a.tar", fields=fields), rule)  # type: ignore[misc]
        for fields, rule in (
            ({"speaker": "json:"}, "must name suffixes"),
            ({"speaker": ":who"}, "must name suffixes"),
            ({"speaker": "CLS"}, "lower case"),
            ({"wav": "json:path"}, "must be a member itself"),
            ({"feat": "json:path"}, "must be a member itself"),
            ({"key": "cls"}, r'\{"key": "json:id"\}'),
        )
        for start in (uio.from_shard_list, uio.from_tar_index)
    ),
    ({}, lambda: uio.from_shard_list("a.tar", fields={"wav": "far.flac"}), 'try grouping="webdataset"'),
    ({}, lambda: uio.from_shard_list("a.tar", interleave=0), "interleave must be 1 or more, not 0"),
    (
        {}, lambda: uio.list_files("a.tar").sharding_filter().open_files(interleave=2).shuffle(3).load_from_tar(),
        "must stand directly before load_from_tar, not 'shuffle'",
    ),
    # texts
    ({"a": ""}, lambda: uio.from_text("a"), "the text a is empty: it contains no line"),
    ({"a": b"a\0b\n"}, lambda: uio.from_text("a"), "the text a has no lines of text .a NUL in line 1"),
    ({"d/": ""}, lambda: uio.from_text("d"), r"is a folder; name the files in it by a glob .*/\*.txt"),
    ({"a": "\n\n\n"}, lambda: uio.from_text("a"), r"list_text\(.* left out 3 as blank_line"),
    ({"a": "1\n2\n3\n", "b": "1\n"}, lambda: uio.from_text({"txt": "a", "target": "b"}), "a has 3 lines, .*b has 1"),
    (
        {"a1": "1\n", "a2": "2\n", "b": "1\n"}, lambda: uio.from_text({"txt": "a*", "target": "b"}),
        "2 files of txt and 1 of target",
    ),
    ({"a": "hello\n"}, lambda: uio.from_jsonl("a"), "a, line 1 is not a JSON object"),
    ({"a": '{"text": "t"}\n'}, lambda: uio.from_jsonl("a", fields={"txt": "t"}), r"fields\['txt'\] asks for 't'"),
    ({"a": '{"text": null}\n'}, lambda: uio.from_jsonl("a", fields={"txt": "text"}), 'another with fields={"txt"'),
    ({}, lambda: uio.from_jsonl("a", text=""), "text must be the name"),
    # Kaldi
    ({}, lambda: uio.from_kaldi("nothing.scp"), r"cannot read .*nothing\.scp"),
    ({"k/": ""}, lambda: uio.from_kaldi("k"), r"has neither wav\.scp nor feats\.scp"),
    ({"k/wav.scp": "\n \n"}, lambda: uio.from_kaldi("k"), "is empty"),
    ({}, lambda: uio.from_kaldi(None), "scp must be a path or URL"),  # type: ignore[arg-type]
    ({"k/wav.scp": "A a\nB\n"}, lambda: uio.from_kaldi("k"), "line 2 is 'B'; its lines must be `KEY …`"),
    (kaldi(segments="S A 1\n"), lambda: uio.from_kaldi("k"), "line 1 is 'S A 1'; its lines must be `KEY … … …`"),
    (kaldi(segments="S A 1 2 0\n"), lambda: uio.from_kaldi("k"), "line 1 is 'S A 1 2 0'"),
    (kaldi(segments="S A one 2\n"), lambda: uio.from_kaldi("k"), "line 1: 'one' is not a number"),
    (kaldi(segments="S A nan 2\n"), lambda: uio.from_kaldi("k"), "line 1: 'nan' is not a number"),
    (kaldi(utt2spk="A a b\n"), lambda: uio.from_kaldi("k"), "line 1 is 'A a b'"),
    (kaldi(utt2dur="A -1\n"), lambda: uio.from_kaldi("k"), "a length cannot be below 0"),
    *(
        (kaldi(**{name: f"{line}\nC x\n\n{line}\n"}), lambda: uio.from_kaldi("k"), f"'A' .*{name} twice, .* 1 and 4")
        for name, line in (("wav.scp", "A a.wav"), ("text", "A a"), ("utt2spk", "A s"))
    ),
    ({"k/wav.scp": "A a\nB cat b |\n"}, lambda: uio.from_kaldi("k"), "line 2 is a pipe.*allow_pipes=True"),
    ({"k/wav.scp": "A cat a > b |\n"}, lambda: uio.from_kaldi("k", allow_pipes=True), "line 1: the pipe has a '>'"),
    ({}, lambda: uio.from_kaldi("k", fields={"who": "spk | [:1]"}), "fields must name existing fields"),
    # TouchDatasets
    ({}, lambda: uio.from_indexed("none"), "neither a folder nor a data list"),
    # NeMo and conversations
    ({"a": "a.tar\n"}, lambda: uio.from_nemo("a"), "a, line 1 is not a JSON object.*audio_filepath"),
    ({"a": NEMO}, lambda: uio.from_nemo("a"), r"neither from the folder .* tarred_audio=… .*a, line 1\)"),
    ({"a": NEMO, "b_0.tar": "", "c_0.tar": ""}, lambda: uio.from_nemo("a", "[bc]_0.tar"), "no file|number of its own"),
    ({}, lambda: uio.from_nemo([["a"], ["b"]], [["a.tar"]]), "as many data sets"),
    ({}, lambda: uio.from_nemo([]), "manifest must be a path"),
    *(
        ({}, lambda tag=tag: uio.from_conversations("a", audio_tag=tag), "audio_tag must be a tag, or several")  # type: ignore[misc]
        for tag in ("", [], [3])
    ),
    ({}, lambda: uio.from_conversations([["a"], ["b"]], [["a.tar"]]), "from_conversations: there must be as many data"),
    ({"a": "hello\n"}, lambda: uio.from_conversations("a"), r'a, line 1 is not a JSON object.*{"messages": \[…\]}'),
    # Parquet
    ({"d/": ""}, lambda: uio.from_parquet("d"), r"is a folder; name the files in it by a glob .*/\*.parquet"),
    ({"a": "# head\n" + RAW}, lambda: uio.from_parquet("a"), "a has JSON lines, not .* Parquet files.*from_raw_list"),
    ({"a.arrow": NO_ROWS}, lambda: uio.from_parquet("a.arrow"), "the name of a Parquet file ends in"),
    ({}, lambda: uio.from_parquet("*.parquet"), "no file matches"),
    ({"a.parquet": NO_ROWS}, lambda: uio.from_parquet("a.parquet"), "have no rows"),
    # tables
    (TSV, table(fields={**NAMES, "txt": "sentnce"}), r"'sentnce', which none of the first 3 .*if sentence is meant"),
    (TSV, table(keep={"sentense | lower": "l"}), r"keep asks for 'sentense' in 'sentense \| lower'"),
    (
        JSON, table("a.json", fields={"key": "sid", "wav": "path"}),
        r"fields\['key'\] asks for 'sid', .*it has dataset, audios; its list 'audios\.segments' has objects: "
        r'uio\.Table\(…, expand="audios\.segments"\) makes rows of them',
    ),
    (JSON, table("a.json", fields=None), r"no row has wav or txt: .*its list 'audios' has objects: uio\.Table"),
    (JSON, lambda: uio.from_table(uio.Table("a.json", expand="segment"), fields={"wav": "path"}), "no row has a list"),
    *(
        ({"a.csv": text}, table("a.csv", fields=fields), r"no names of columns, .* uio\.Table\(…, separator=…, header=")
        for text in ("path;sentence\na.wav;hello\n", "a.wav,hello\nb.wav,world\n")
        for fields in ({"wav": "path", "txt": "sentence"}, None)
    ),
    (B, table(joined("pth = clip")), r"a\.tsv: on asks for 'pth', .*path.*did you mean 'path'"),
    (B, table(joined("path = klip")), r"b\.tsv: on asks for 'klip', .* has clip, ms; did you mean 'clip'"),
    (B, table(joined("sentence = clip")), "no row has a match in .*b.tsv, as 'sentence' is 'said"),
    ({"a.tsv": "a\tb\n1,2\n"}, table(fields={"wav": "a"}), r"no row can be read: .*line 2: it has 1 values, .* 2 col"),
    ({}, lambda: uio.from_table(uio.Table("a", constants={"lang": 3})), "constants must be texts by the names"),  # type: ignore[dict-item]
    (TSV, table(archives="*.tar"), r"no file matches '.*\*\.tar'"),
    (TSV, table(archives="b.tar"), "no_audio.*no such file|no such file"),
    (TSV, table(archives="b.tar.gz"), "no such file"),
    (TSV, table(match="path | stem"), "match and stream say how archives are read"),
    (TSV, table(stream=True), "match and stream say how archives are read"),
    (TSV, table(archives="b.tar", match="pth | stem"), "match may use only the path of a member"),
    (TSV, table(archives="b.tar", stream=1), "stream must be True, False or None"),
    (TSV, table(archives="b.tar", match="path | nothing"), "there is no filter 'nothing'"),
    (TSV, table(archives=7), "archives must be paths"),
    (TSV, table(archives="{x.tar"), "a brace is not closed"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_an_error_says_what_is_wrong_and_where(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, begin, message = MESSAGES[number]
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        if not name.endswith("/"):
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(uio.UioError, match=message):
        list(uio.Loader(begin().map(dict), failures="raise"))
