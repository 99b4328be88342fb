"""Every source, stage and command with signed URLs: they work as without a signature, and no secret gets out."""

import gzip
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import kaldi_data
import nemo_data
import pytest
from command import uio as command
from corpus import wav_bytes
from every_source import SOURCES, speech
from fault_server import FaultServer, serving

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


def row(name: str) -> Callable[[FaultServer, Path], uio.Pipeline]:
    """The data of a source on a server: each file that they name has a signed URL."""

    def make(server: FaultServer, root: Path) -> uio.Pipeline:
        SOURCES[name].write(root, speech(), lambda file: f"{server.url}/{file}{QUERY}", {})
        for path in filter(Path.is_file, root.rglob("*")):
            server.add(str(path.relative_to(root)), path.read_bytes())
        return SOURCES[name].begin(lambda file: f"{server.url}/{file}{QUERY}")

    return make


def features(server: FaultServer, root: Path) -> uio.Pipeline:
    kaldi_data.feats(root, 4)
    lines = dict(line.split() for line in (root / "feats.scp").read_text().splitlines())
    ark = server.add("feats.ark", (root / "feats.ark").read_bytes()) + QUERY
    kaldi_data.write(root / "feats.scp", {key: f"{ark}:{value.rpartition(':')[2]}" for key, value in lines.items()})
    return uio.from_kaldi(*(server.add(name, (root / name).read_bytes()) + QUERY for name in ("feats.scp", "text")))


def nemo_shards(server: FaultServer, root: Path) -> uio.Pipeline:
    made = nemo_data.tarred(root, [2, 3])
    files = sorted(Path(made.manifests).parent.glob("*.json")), sorted(root.rglob("*.tar"))
    return uio.from_nemo(*([server.add(p.name, p.read_bytes()) + QUERY for p in paths] for paths in files))


def overlay(server: FaultServer, root: Path) -> uio.Pipeline:
    lines = gzip.compress(json.dumps({"key": "u0", "txt": "new"}).encode())
    return row("raw")(server, root).overlay(server.add("new.jsonl.gz", lines) + QUERY)


def noise(server: FaultServer, root: Path) -> uio.Pipeline:
    noises = server.add("noise.wav", wav_bytes(9)) + QUERY
    return row("raw")(server, root).decode_audio().add_noise(noises, snr=(5, 10))


def mixed(server: FaultServer, root: Path) -> uio.Pipeline:
    return uio.mix({"a": overlay(server, root), "b": nemo_shards(server, root / "b")})


MADE: dict[str, Callable[[FaultServer, Path], uio.Pipeline]] = {
    **{name: row(name) for name, source in SOURCES.items() if source is not SOURCES["iterable"]},
    **{make.__name__: make for make in (features, nemo_shards, overlay, noise, mixed)},
}


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


@pytest.mark.parametrize("name", MADE)
def test_a_signature_hides_no_suffix_and_no_secret_gets_out(
    name: str, server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "uio_pipes")
    pipeline = MADE[name](server, tmp_path)
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
    row("shards")(server, tmp_path)
    url, shard = f"{server.url}/data.list{QUERY}", f"{server.url}/b.tar{QUERY}"
    script = tmp_path / "train.py"
    script.write_text(f"import uio_pipes as uio\npipeline = uio.from_shard_list({url!r}).batch(2)\n")
    page, state = tmp_path / "page.html", tmp_path / "state.json"
    loader = uio.Loader(uio.from_shard_list(shard).batch(1))
    next(iter(loader))
    state.write_text(json.dumps(loader.state_dict()))
    for arguments in (
        ("inspect", url, "--report", page),
        ("inspect", shard, "--json"),
        ("simulate", f"{script}:pipeline"),
        ("state", state),
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
