"""Redirects that aiohttp follows, for options that only it knows: the user's headers stay at home."""

import random
from typing import Any

import pytest
from fault_server import FaultServer, serving
from lies import LIES

from uio_pipes.base.errors import DataError
from uio_pipes.io import retry
from uio_pipes.io.access import Access
from uio_pipes.io.ranged import RemoteFile
from uio_pipes.io.transport import FsObject

aiohttp = pytest.importorskip("aiohttp")

DATA = random.Random(1).randbytes(20_000)
SECRET = "s3cr3t-Word"
THEIRS = {"Authorization": f"Bearer {SECRET}", "Cookie": f"a={SECRET}", "X-Api-Key": SECRET}
LIMIT = {"client_kwargs": {"timeout": aiohttp.ClientTimeout(total=5)}}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "ATTEMPTS", 3)


@pytest.mark.parametrize(
    "options",
    [{**LIMIT, "headers": THEIRS}, {"client_kwargs": {**LIMIT["client_kwargs"], "headers": THEIRS}}],
    ids=["of the request", "of the client"],
)
def test_no_header_follows_to_another_host(server: FaultServer, options: dict[str, Any]) -> None:
    with serving() as other:
        url = server.add("a", b"", redirect=other.add("real", DATA))
        file = RemoteFile(url, Access(options))
        assert isinstance(file.transport, FsObject)
        assert file.read(5, 10) == DATA[5:15]
        assert THEIRS.items() <= server.headers.items()
        assert SECRET not in str(other.headers)
        assert not {name.lower() for name in THEIRS} & {name.lower() for name in other.headers}
        assert other.headers["Range"] == "bytes=5-14"
    home = server.add("b", b"", redirect=server.add("home", DATA))
    assert RemoteFile(home, Access(options)).read(5, 10) == DATA[5:15]
    assert THEIRS.items() <= server.headers.items(), "the same server may know"


@pytest.mark.filterwarnings("ignore:.*auth.*:DeprecationWarning")
@pytest.mark.parametrize("secret", ["auth", "cookies"])
def test_what_cannot_be_kept_back_is_not_sent_at_all(server: FaultServer, secret: str) -> None:
    with serving() as other:
        url = server.add("a", b"", redirect=other.add("real", DATA))
        value = {"a": SECRET} if secret == "cookies" else aiohttp.BasicAuth("me", SECRET)
        with pytest.raises(DataError, match=r"a redirect leads to http://127\.0\.0\.1, which would be sent") as caught:
            RemoteFile(url, Access({"client_kwargs": {secret: value}})).read(5, 10)
        assert caught.value.reason == "unopenable"
        assert other.asked == []
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("lie", [name for name in LIES if name.startswith("redirects")])
def test_malformed_redirects_are_bad_data(server: FaultServer, lie: str) -> None:
    with pytest.raises(DataError) as caught:
        RemoteFile(server.add("a", DATA, lie=LIES[lie]), Access(LIMIT)).read(5, 10)
    assert caught.value.reason in ("unopenable", "unreadable_file", "missing_file", "truncated")


def test_a_server_without_ranges(server: FaultServer) -> None:
    assert RemoteFile(server.add("a", DATA, ranges=False), Access(LIMIT)).read(5, 1000) == DATA[5:1005]
    assert RemoteFile(server.add("b", DATA, cap=3000), Access(LIMIT)).read(5, 15_000) == DATA[5:15_005]
