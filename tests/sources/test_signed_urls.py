"""Every source, stage and command with signed URLs: they work as without a signature, and no secret gets out."""

import gzip
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import kaldi_data
import nemo_data
import parquet_corpus
import pytest
import touchdataset
from command import uio as command
from corpus import Corpus, wav_bytes
from fault_server import FaultServer, serving
from indexed_corpus import indexed

import uio_pipes as uio
from uio_pipes.base.urls import beside, folder_of, inside, path_of, redact, suffix_of, unsigned
from uio_pipes.io import retry

SECRET = "s3cr3tWord"
QUERY = "&".join(f"{name}={SECRET}" for name in ("?jwt", "pwd", "pass", "access_key", "id", "X-Amz-Signature"))
QUERY += f"/{SECRET}.a?{SECRET}#access_token={SECRET}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setattr(retry, "ATTEMPTS", 2)
    with serving() as made:
        yield made


def signed(server: FaultServer, *paths: Path, root: Path | None = None) -> list[str]:
    """Serve files; their signed URLs."""
    names = [path.name if root is None else str(path.relative_to(root)) for path in paths]
    return [server.add(name, path.read_bytes()) + QUERY for name, path in zip(names, paths, strict=True)]


def served(server: FaultServer, root: Path) -> str:
    """Serve a folder; its signed URL."""
    signed(server, *(path for path in root.rglob("*") if path.is_file()), root=root.parent)
    return f"{server.url}/{root.name}{QUERY}"


Make = Callable[[FaultServer, Path], uio.Pipeline]


def shards(server: FaultServer, root: Path, *, suffix: str = ".tar") -> list[str]:
    import corpus

    made = corpus.shards(root, [3, 2], seconds=(0.3, 1.5), compress=suffix.removeprefix(".tar").removeprefix("."))
    return signed(server, *paths_in(made))


def paths_in(made: Corpus) -> list[Path]:
    return [Path(line) for line in made.list.read_text().splitlines() if line.startswith("/")]


def listed(server: FaultServer, root: Path) -> uio.Pipeline:
    server.add("shards.list", "\n".join(shards(server, root)).encode())
    return uio.from_shard_list(f"{server.url}/shards.list{QUERY}")


def raw(server: FaultServer, root: Path) -> uio.Pipeline:
    lines = [{"key": f"k{i}", "txt": "文", "wav": server.add(f"k{i}.wav", wav_bytes(i)) + QUERY} for i in range(4)]
    server.add("data.list", "\n".join(map(json.dumps, lines)).encode())
    return uio.from_raw_list(f"{server.url}/data.list{QUERY}")


def kaldi(server: FaultServer, root: Path) -> uio.Pipeline:
    kaldi_data.recordings(root, 4)
    lines = [line.split(None, 1) for line in (root / "wav.scp").read_text().splitlines()]
    of_ark = {key: path.rpartition(":") for key, path in lines if ".ark:" in path}
    names = {key: Path(of_ark[key][0] if key in of_ark else path) for key, path in lines}
    urls = {
        key: signed(server, path)[0] + (f":{of_ark[key][2]}" if key in of_ark else "") for key, path in names.items()
    }
    kaldi_data.write(root / "wav.scp", urls)
    return uio.from_kaldi(*signed(server, root / "wav.scp", root / "text"))


def features(server: FaultServer, root: Path) -> uio.Pipeline:
    kaldi_data.feats(root, 4)
    lines = dict(line.split() for line in (root / "feats.scp").read_text().splitlines())
    (ark,) = signed(server, root / "feats.ark")
    kaldi_data.write(root / "feats.scp", {key: f"{ark}:{value.rpartition(':')[2]}" for key, value in lines.items()})
    return uio.from_kaldi(*signed(server, root / "feats.scp", root / "text"))


def kaldi_folder(server: FaultServer, root: Path) -> uio.Pipeline:
    kaldi(server, root)
    return uio.from_kaldi(served(server, root))


def touch(server: FaultServer, root: Path) -> uio.Pipeline:
    folder = touchdataset.write(root / "touch", touchdataset.speech(4))
    return uio.from_indexed(served(server, folder))


def tar_index(server: FaultServer, root: Path) -> uio.Pipeline:
    import corpus

    made = corpus.shards(root, [3, 2], seconds=(0.3, 1.5))
    indexed(made.list, root / "indexes")
    signed(server, *(root / "indexes").rglob("*.uioidx"))
    return uio.from_tar_index(signed(server, *paths_in(made)))


def parquet(server: FaultServer, root: Path) -> uio.Pipeline:
    path = parquet_corpus.write(root / "a.parquet", parquet_corpus.rows(4))
    return uio.from_parquet(signed(server, path)[0], fields={"key": "id", "wav": "audio", "txt": "text"})


def nemo(server: FaultServer, root: Path) -> uio.Pipeline:
    made = nemo_data.tarred(root, [2, 3])
    manifests, tars = sorted(Path(made.manifests).parent.glob("*.json")), sorted(root.rglob("*.tar"))
    return uio.from_nemo(signed(server, *manifests), signed(server, *tars))


def nemo_files(server: FaultServer, root: Path) -> uio.Pipeline:
    manifest = nemo_data.plain(root, 3)
    signed(server, *root.rglob("*.wav"), root=root)
    return uio.from_nemo(signed(server, manifest))


def shar(server: FaultServer, root: Path) -> uio.Pipeline:
    import shar_corpus

    folder = shar_corpus.shar(root, [2, 3])
    files = {name: signed(server, *sorted(folder.glob(f"{name}.*"))) for name in ("cuts", "recording")}
    return uio.from_lhotse_shar(files)


def cuts(server: FaultServer, root: Path) -> uio.Pipeline:
    import cuts_corpus

    found = [cuts_corpus.cut_of(root, number) for number in range(4)]
    for cut in found:
        (source,) = cut["recording"]["sources"]
        source |= {"type": "url", "source": signed(server, Path(source["source"]))[0]}
    return uio.from_lhotse_cuts(signed(server, cuts_corpus.write_cuts(root / "cuts.jsonl.gz", found)))


def jsonl(server: FaultServer, root: Path) -> uio.Pipeline:
    text = "".join(json.dumps({"text": f"文{i}"}) + "\n" for i in range(4))
    return uio.from_jsonl(server.add("a.jsonl.gz", gzip.compress(text.encode())) + QUERY)


def text(server: FaultServer, root: Path) -> uio.Pipeline:
    return uio.from_text(server.add("a.txt", b"a\nb\n") + QUERY)


def overlay(server: FaultServer, root: Path) -> uio.Pipeline:
    lines = gzip.compress(json.dumps({"key": "k0", "txt": "new"}).encode())
    return raw(server, root).overlay(server.add("new.jsonl.gz", lines) + QUERY)


def noise(server: FaultServer, root: Path) -> uio.Pipeline:
    return raw(server, root).decode_audio().add_noise(server.add("noise.wav", wav_bytes(9)) + QUERY, snr=(5, 10))


def mixed(server: FaultServer, root: Path) -> uio.Pipeline:
    return uio.mix({"a": overlay(server, root), "b": uio.from_shard_list(shards(server, root))})


SOURCES: dict[str, Make] = {
    "shards": lambda server, root: uio.from_shard_list(shards(server, root)),
    "gz": lambda server, root: uio.from_shard_list(shards(server, root, suffix=".tar.gz")),
    **{
        make.__name__: make
        for make in (
            listed, raw, kaldi, features, kaldi_folder, touch, tar_index, parquet, nemo, nemo_files, shar, cuts, jsonl,
            text, overlay, noise, mixed,
        )
    },
}  # fmt: skip


def said_of(pipeline: uio.Pipeline) -> Iterator[str]:
    """Whatever is printed, saved or raised along an epoch."""
    yield from (repr(pipeline), str(pipeline), repr(pipeline.stages), repr(pipeline.fingerprint()))
    loader = uio.Loader(pipeline.batch(2), failures="skip")
    count = 0
    for batch in loader:
        count += len(batch)
        yield from (sample["key"] for sample in batch)
        yield str(loader.state_dict())
    assert count
    yield repr(loader.stats()) + repr(loader)


@pytest.mark.parametrize("name", SOURCES)
def test_a_signature_hides_no_suffix_and_no_secret_gets_out(
    name: str, server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "uio_pipes")
    pipeline = SOURCES[name](server, tmp_path)
    said = "\n".join(said_of(pipeline))
    for path in server.files:  # now each file is gone, and then each fails
        server.files[path].faults.extend(["500"] * 99)
        try:
            list(uio.Loader(pipeline.batch(2), failures="raise"))
        except uio.UioError as error:
            said += "".join(traceback.format_exception(error)) + repr(error)
        server.files[path].faults.clear()
    assert SECRET not in said + caplog.text, next(line for line in said.splitlines() if SECRET in line)


def test_commands_show_no_secret(server: FaultServer, tmp_path: Path) -> None:
    listed(server, tmp_path)
    url, shard = f"{server.url}/shards.list{QUERY}", f"{server.url}/s001.tar{QUERY}"
    conf = tmp_path / "conf.yaml"
    conf.write_text("dataset_conf: {batch_conf: {batch_type: static, batch_size: 2}}")
    page, state = tmp_path / "page.html", tmp_path / "state.json"
    loader = uio.Loader(uio.from_shard_list(shard).batch(1))
    next(iter(loader))
    state.write_text(json.dumps(loader.state_dict()))
    for arguments in (
        ("inspect", url, "--report", page),
        ("inspect", shard, "--json"),
        ("simulate", "--data", url, "--conf", conf),
        ("state", "show", state),
        ("verify", url),
        ("index", shard, "--into", tmp_path / "indexes"),
        ("verify", url + "x", "--json"),
        ("inspect", f"{server.url}/none.tar{QUERY}"),
        ("inspect", url, "--report", url),
    ):
        done = command(*arguments)
        assert SECRET not in done.stdout + done.stderr, arguments
        assert "Traceback" not in done.stderr
    assert page.exists()
    assert SECRET not in page.read_text()


@pytest.mark.parametrize(
    ("url", "shown", "path"),
    [
        ("http://h/a.tar?page=2&key=S#S", "http://h/a.tar?page=2&key=***#***", "http://h/a.tar"),
        ("http://h/a.tar?S", "http://h/a.tar?***", "http://h/a.tar"),
        ("http://me:S@h:80/a@b.tar", "http://***@h:80/a@b.tar", "http://me:S@h:80/a@b.tar"),
        ("http://me:S/S?S@h/a", "http://***@h/a", None),
        ("http:/S@h/a.tar", "http:/***@h/a.tar", None),
        ("http:/me:S/S@h/a.tar", "http:/***@h/a.tar", None),
        ("s3://b/part-??.tar", "s3://b/part-??.tar", "s3://b/part-??.tar"),
        ("s3://b/lang=?/take#2.wav", "s3://b/lang=?/take#2.wav", "s3://b/lang=?/take#2.wav"),
        ("/a?b=c#d=e.tar", "/a?b=c#d=e.tar", "/a?b=c#d=e.tar"),
    ],
)
def test_parts_of_urls(url: str, shown: str, path: str | None) -> None:
    found = redact(url)
    assert found.replace("***f0df1f71", "***") == shown
    assert redact(found) == found
    assert redact(f"cannot read {url}, line 3: it ends") == f"cannot read {found}, line 3: it ends"
    assert path in (None, path_of(url))


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (
            "curl -s -H 'Authorization: Bearer S' https://h/x.wav |",
            "curl -s -H 'Authorization: Bearer ***' https://h/x.wav |",
        ),
        ("curl --user me:S https://h/x.wav |", "curl --user me:*** https://h/x.wav |"),
        ("AWS_SECRET_ACCESS_KEY=S aws s3 cp s3://b/a.wav - |", "AWS_SECRET_ACCESS_KEY=*** aws s3 cp s3://b/a.wav - |"),
        ("curl -ume:S https://h/x.wav |", "curl -ume:*** https://h/x.wav |"),
        ('curl -H "PRIVATE-TOKEN: S" https://h/x.wav |', 'curl -H "PRIVATE-TOKEN: ***" https://h/x.wav |'),
        ("wget --header='X-Api-Key: S' x |", "wget --header='X-Api-Key: ***' x |"),
        ("hadoop fs -Dfs.s3a.secret.key=S -cat s3a://b/a |", "hadoop fs -Dfs.s3a.secret.key=*** -cat s3a://b/a |"),
        ("curl --oauth2-bearer S https://h/x.wav |", "curl --oauth2-bearer *** https://h/x.wav |"),
        ("sshpass -p S ssh h cat a.wav |", "sshpass -p *** ssh h cat a.wav |"),
        ("TOKEN=S", "TOKEN=***"),
        ("give --token-type, or unk_token=<unk>", "give --token-type, or unk_token=<unk>"),
        ("wget --password S -O- ftp://h/a.wav |", "wget --password *** -O- ftp://h/a.wav |"),
        ("sph2pipe -f wav -p a.sph |", "sph2pipe -f wav -p a.sph |"),
        ("key=a tokens=3 pad_token=<pad>", "key=a tokens=3 pad_token=<pad>"),
    ],
)
def test_what_the_command_of_a_pipe_keeps_to_itself(command: str, shown: str) -> None:
    assert redact(command) == redact(shown) == shown, redact(command)
    for word in ("x", "x-", "xsecret", "passwd", "--token", "x.key", "'key"):
        assert redact(f"a {word * 40_000}") == f"a {word * 40_000}"  # at once, and not in square time


def test_files_apart_by_a_query_stay_apart() -> None:
    one, other = (f"http://h/get?id={number}&sig=a" for number in (1, 2))
    assert redact(one) != redact(other)
    assert redact(one) == redact(one.replace("sig=a", "sig=b"))
    assert unsigned(one) != unsigned(other)
    assert redact(unsigned(one)) == redact(one), "a state of earlier versions has the former"


def test_names_beside_a_signed_url() -> None:
    assert beside("http://h/a.tar?x=1#y=2", ".idx") == "http://h/a.tar.idx?x=1#y=2"
    assert inside("http://h/data/?x=1", "a") == "http://h/data/a?x=1"
    assert folder_of("http://h/data/a.scp?x=1/2") == "http://h/data?x=1/2"
    assert inside(folder_of("a"), "b") == "b"
    assert suffix_of("http://h/a.b/c?x=1.wav") == ""
    assert suffix_of("http://h/a.b/c.FLAC?x=1.wav") == "flac"
