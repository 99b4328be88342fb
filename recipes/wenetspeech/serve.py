"""Serve shards from this machine: by an S3-compatible server (moto), or by plain HTTP with ranges, on a local port.

By hand: ``python -m recipes.wenetspeech.serve s3 DATA`` serves until Ctrl-C, and prints the variables to export. The
recipe does the same with ``--from s3`` and ``--from http``. Real buckets need neither: put ``s3://…`` URLs into the
list and the usual ``AWS_…`` variables (or ``FSSPEC_S3_…``, as below) into the environment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import fsspec
import fsspec.config
import typer

from uio_pipes.io.files import write_lines

from ..common.lists import read_lines
from ..common.problems import told
from .http_ranges import CannotServe, http_server, taken

Kind = Literal["s3", "http"]
BUCKET = "wenetspeech"
# Fixed, because a training can only resume with the same URLs.
PORTS: dict[str, int] = {"s3": 9301, "http": 9302}


@contextlib.contextmanager
def s3_server(port: int = 0) -> Iterator[str]:
    """Start an empty S3 (moto); yield its endpoint. In the block, this process and its children use it for ``s3://``.

    Raises: CannotServe if moto or s3fs is not installed, or the port is taken.
    """
    try:
        import s3fs  # noqa: F401  fsspec needs it
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        raise CannotServe(f"{error}: pip install 'uio_pipes[wenetspeech]'") from error
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        socket.create_server(("127.0.0.1", port)).close()  # with a taken port, moto would wait for ever
    except OSError as error:
        raise CannotServe(taken(port, error)) from error
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    host, bound = server.get_host_and_port()
    endpoint = f"http://{host}:{bound}"
    try:
        with _environment(s3_environment(endpoint)):
            yield endpoint
    finally:
        server.stop()


def s3_environment(endpoint: str) -> dict[str, str]:
    """Return the variables that say to fsspec where ``s3://`` is; a process must have them before it imports fsspec."""
    return {"FSSPEC_S3_ENDPOINT_URL": endpoint, "FSSPEC_S3_KEY": "key", "FSSPEC_S3_SECRET": "secret"}


@contextlib.contextmanager
def _environment(names: dict[str, str]) -> Iterator[None]:
    """Set variables for child processes, and for fsspec here, which reads its environment only when it is imported."""
    before = {name: os.environ.get(name) for name in names}
    conf = fsspec.config.conf.get("s3")
    os.environ.update(names)
    fsspec.config.conf["s3"] = {name.removeprefix("FSSPEC_S3_").lower(): value for name, value in names.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        fsspec.config.conf.pop("s3")
        if conf is not None:
            fsspec.config.conf["s3"] = conf


def upload(data: Path, names: list[str]) -> str:
    """Put the shards of some sets into the bucket; return the URL that replaces ``data``."""
    filesystem = fsspec.filesystem("s3", skip_instance_cache=True)
    if not filesystem.exists(BUCKET):
        filesystem.mkdir(BUCKET)
    for name in names:
        shards = read_lines(data / name / "shards.list")
        targets = [f"{BUCKET}/{Path(shard).relative_to(data.resolve())}" for shard in shards]
        filesystem.put(shards, targets)
    return f"s3://{BUCKET}"


def write_remote_lists(data: Path, names: list[str], base: str, kind: Kind) -> dict[str, Path]:
    """Write ``DATA/…/shards.s3.list``: the URLs of the shards, with ``base`` in place of ``data``."""
    lists = {}
    for name in names:
        shards = read_lines(data / name / "shards.list")
        lists[name] = data / name / f"shards.{kind}.list"
        write_lines(lists[name], (f"{base}/{Path(shard).relative_to(data.resolve())}" for shard in shards))
    return lists


@contextlib.contextmanager
def serve(kind: Kind, data: Path, names: list[str], port: int | None = None) -> Iterator[tuple[str, dict[str, Path]]]:
    """Serve the shards of some sets of ``data``; yield the URL that replaces it and the list of URLs of each set.

    Raises: CannotServe.
    """
    port = PORTS[kind] if port is None else port
    if kind == "http":
        with http_server(data, port) as base:
            yield base, write_remote_lists(data, names, base, kind)
        return
    with s3_server(port):
        base = upload(data, names)
        yield base, write_remote_lists(data, names, base, kind)


def main(
    kind: Annotated[str, typer.Argument(help="s3 or http.")],
    data: Annotated[Path, typer.Argument(help="Folder with packed shards (stage 3).")],
    names: Annotated[list[str] | None, typer.Option("--set", help="train, dev, …; repeat.")] = None,
    port: Annotated[int, typer.Option(help="0: 9301 for s3, 9302 for http.")] = 0,
) -> None:
    """Serve shards until Ctrl-C."""
    if kind not in PORTS:
        typer.echo(f"KIND must be s3 or http, not {kind}", err=True)
        raise typer.Exit(2)
    at = port or PORTS[kind]
    chosen: Kind = "s3" if kind == "s3" else "http"
    with told(CannotServe, FileNotFoundError), serve(chosen, data, names or ["train", "dev"], at) as (_, lists):
        if kind == "s3":
            exports = s3_environment(f"http://127.0.0.1:{at}")
            typer.echo("export " + " ".join(f"{name}={value}" for name, value in exports.items()))
        for path in lists.values():
            typer.echo(str(path))
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    typer.run(main)
