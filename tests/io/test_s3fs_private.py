"""Each name inside s3fs, fsspec and aiobotocore that io/s3fs_private.py uses is still there, and takes what we give it.

If one of these fails after a new s3fs was installed, mend io/s3fs_private.py; the message says what hangs on it.
All hold with the versions below, the last that they were tried with. No server is asked.
"""

import inspect
import threading
from importlib.metadata import version
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from uio_pipes.io import s3fs_private

s3fs = pytest.importorskip("s3fs")

GOOD = {"s3fs": "2026.9.0", "fsspec": "2026.9.0", "aiobotocore": "3.10.0"}
NOW = ", ".join(f"{name} {version(name)} (last good {good})" for name, good in GOOD.items())
SIGNED = "needs_s3fs: requests that a signed URL cannot make would be made by one, and refused or misread"
READ = "file_info and range_reader: remote files that fsspec reaches could not be read, or not within a deadline"


@pytest.fixture
def fs() -> Any:
    return s3fs.S3FileSystem(anon=True, skip_instance_cache=True)


@pytest.mark.parametrize(
    ("name", "kind", "used_by"),
    [
        ("client_kwargs", dict, SIGNED),
        ("req_kw", dict, SIGNED),
        ("s3_additional_kwargs", dict, SIGNED),
        ("config_kwargs", dict, SIGNED),
        ("version_aware", bool, SIGNED),
        ("async_impl", bool, READ),
        ("loop", object, READ),
    ],
)
def test_s3fs_has_the_attribute(fs: Any, name: str, kind: type, used_by: str) -> None:
    assert isinstance(getattr(fs, name, None), kind), f"{NOW}: S3FileSystem.{name} is no {kind.__name__}. {used_by}"


@pytest.mark.parametrize(
    ("name", "given", "options", "used_by"),
    [
        ("_info", ("b/k",), {"refresh": True}, READ),
        ("_cat_file", ("b/k",), {"start": 0, "end": 9}, READ),
    ],
)
def test_s3fs_has_the_coroutine(
    fs: Any, name: str, given: tuple[str, ...], options: dict[str, Any], used_by: str
) -> None:
    method = getattr(fs, name, None)
    assert inspect.iscoroutinefunction(method), f"{NOW}: S3FileSystem.{name} is no coroutine. {used_by}"
    inspect.signature(method).bind(*given, **options)


@pytest.mark.parametrize(
    ("options", "path", "needed"),
    [
        ({}, "b/k", False),
        ({"endpoint_url": "http://127.0.0.1:1", "client_kwargs": {"region_name": "eu"}}, "b/k", False),
        ({"client_kwargs": {"verify": False}}, "b/k", True),
        ({"requester_pays": True}, "b/k", True),
        ({"s3_additional_kwargs": {"SSECustomerKey": "x"}}, "b/k", True),
        ({"config_kwargs": {"proxies": {"http": "p"}}}, "b/k", True),
        ({"version_aware": True}, "b/k", True),
        ({"version_aware": True}, "b/k?versionId=1", True),
    ],
    ids=str,
)
def test_options_that_a_signed_url_cannot_say_are_seen(options: dict[str, Any], path: str, needed: bool) -> None:
    made = s3fs.S3FileSystem(anon=True, skip_instance_cache=True, **options)
    assert s3fs_private.needs_s3fs(made, path) is needed, f"{NOW}: an option is kept elsewhere. {SIGNED}"


def test_sync_takes_a_deadline(fs: Any) -> None:
    async def never(path: str, *, start: int) -> None:
        await fsspec.asyn.asyncio.sleep(60)

    with pytest.raises(fsspec.exceptions.FSTimeoutError):
        fsspec.asyn.sync(fs.loop, never, "a", start=0, timeout=0.05)


def test_file_systems_without_coroutines_are_asked_directly() -> None:
    memory = MemoryFileSystem()
    memory.pipe("/pins/a", b"0123456789")
    assert not memory.async_impl, f"{NOW}: {READ}"
    assert s3fs_private.file_info(memory, "/pins/a", 1)["size"] == 10
    assert s3fs_private.range_reader(memory, "/pins/a", 1)(2, 5) == b"234"


def test_file_systems_without_coroutines_have_a_deadline_too() -> None:
    answered = threading.Event()

    class Silent(MemoryFileSystem):
        def info(self, path: str, **options: Any) -> None:
            answered.wait()

        def cat_file(self, path: str, **options: Any) -> None:
            answered.wait()

    silent = Silent(skip_instance_cache=True)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        s3fs_private.file_info(silent, "/pins/a", 0.05)
    with pytest.raises(TimeoutError):
        s3fs_private.range_reader(silent, "/pins/a", 0.05)(2, 5)
    answered.set()
