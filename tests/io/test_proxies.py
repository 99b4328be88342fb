"""HTTP, HTTPS and S3 through a real proxy that the environment names; its credentials are told to nobody else."""

import base64
import random
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fault_server import FaultServer, read_on, serving
from proxy_server import ProxyServer, proxying
from servers import s3_server

from uio_pipes.base.errors import DataError
from uio_pipes.io import connections, retry
from uio_pipes.io import connections as proxies
from uio_pipes.io.access import Access
from uio_pipes.io.ranged import RemoteFile

DATA = random.Random(1).randbytes(1_000_001)
SECRET = "s3cr3t:W@rd"
QUOTED = "s3cr3t%3AW%40rd"
BASIC = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(retry, "ATTEMPTS", 3)
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    proxies.proxy_for.cache_clear()
    yield
    proxies.proxy_for.cache_clear()


@pytest.fixture
def proxy() -> Iterator[ProxyServer]:
    with proxying() as made:
        yield made


@pytest.fixture
def tls(server: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FaultServer:
    """The server, with a certificate that this process trusts."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "here")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = made.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem, kinds = serialization.Encoding.PEM, (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "cert").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "key").write_bytes(key.private_bytes(pem, *kinds))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert"))
    monkeypatch.setattr(connections, "_context", None)
    return server


def at(proxy: ProxyServer, credentials: str = "") -> str:
    return f"{credentials}127.0.0.1:{proxy.server_port}"


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
@pytest.mark.parametrize("scheme", ["http://", ""])
def test_http(server: FaultServer, proxy: ProxyServer, name: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, scheme + at(proxy))
    url = server.add("a%20b", DATA, "", "reset 70000") + "?x=1&y=%20"
    assert read_on(RemoteFile(url)) == DATA
    assert set(proxy.asked) == {("GET", url)}
    assert proxy.headers["Host"] == f"127.0.0.1:{server.server_port}"
    assert {path for path, _, _ in server.asked} == {"a%20b"}


def test_credentials_go_to_the_proxy_alone(
    server: FaultServer, proxy: ProxyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://" + at(proxy, f"me:{QUOTED}@"))
    proxy.credentials = BASIC
    file = RemoteFile(server.add("a", DATA), Access({"headers": {"Authorization": "Bearer of-the-server"}}))
    assert file.read(5, 10) == DATA[5:15]
    assert proxy.headers["Proxy-Authorization"] == BASIC
    assert server.headers["Authorization"] == "Bearer of-the-server"
    assert "Proxy-Authorization" not in server.headers


def test_https(tls: FaultServer, proxy: ProxyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://" + at(proxy, f"me:{QUOTED}@"))
    proxy.credentials = BASIC
    url = tls.add("a", DATA).replace("http:", "https:")
    assert RemoteFile(url).read(5, 500_000) == DATA[5:500_005]
    assert read_on(RemoteFile(url)) == DATA
    assert set(proxy.asked) == {("CONNECT", f"127.0.0.1:{tls.server_port}")}
    assert len(proxy.asked) < len(tls.asked), "tunnels are used again"
    assert "Proxy-Authorization" not in tls.headers


@pytest.mark.parametrize("excluded", ["127.0.0.1", "*", "host,.example.com,127.0.0.1:{port}", "https has its own"])
@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_hosts_without_a_proxy(
    server: FaultServer, proxy: ProxyServer, name: str, excluded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY" if "https" in excluded else "HTTP_PROXY", "http://" + at(proxy))
    monkeypatch.setenv(name, excluded.format(port=server.server_port))
    assert RemoteFile(server.add("a", DATA)).read(5, 10) == DATA[5:15]
    assert proxy.asked == []


REFUSED = (
    r"status 407 .*of the proxy 127\.0\.0\.1:\d+: give its user and password in {name}_PROXY, as user:password@ before"
)


@pytest.mark.parametrize("protocol", ["http", "https"])
@pytest.mark.parametrize(
    ("status", "requests", "message"),
    [
        (407, 1, REFUSED),
        (502, 3, r"3 attempts.*status 502 .*the proxy 127\.0\.0\.1:\d+"),
        (403, 1, r"permission denied|status 403 .*of the proxy 127\.0\.0\.1:\d+: .*NO_PROXY"),
    ],
)
def test_what_a_proxy_refuses(
    server: FaultServer, proxy: ProxyServer, protocol: str, status: int, requests: int, message: str,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv(f"{protocol}_proxy", "http://" + at(proxy, f"me:{QUOTED}@"))
    proxy.faults = [status] * 9
    url = server.add("a", DATA).replace("http:", f"{protocol}:")
    with pytest.raises(DataError, match=message.format(name=protocol.upper())) as caught:
        RemoteFile(url).read(5, 10)
    assert (caught.value.reason, caught.value.url, len(proxy.asked)) == ("unreadable_file", url, requests)
    assert server.asked == []
    said = str(caught.value) + caplog.text
    assert SECRET not in said
    assert QUOTED not in said


@pytest.mark.parametrize("protocol", ["http", "https"])
def test_a_busy_proxy_is_asked_again(
    tls: FaultServer, server: FaultServer, proxy: ProxyServer, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{protocol}_proxy", at(proxy))
    proxy.faults = [503, 429]
    if protocol == "https":
        assert RemoteFile(tls.add("a", DATA).replace("http:", "https:")).read(5, 10) == DATA[5:15]
        return
    with serving() as plain:
        assert RemoteFile(plain.add("a", DATA)).read(5, 10) == DATA[5:15]


@pytest.mark.parametrize("protocol", ["http", "https"])
def test_a_proxy_that_is_not_there(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxying() as gone:
        proxy = at(gone)
    monkeypatch.setenv(f"{protocol}_proxy", f"http://me:{QUOTED}@{proxy}")
    with pytest.raises(DataError, match=f"cannot connect: .*, through the proxy {proxy}") as caught:
        RemoteFile(f"{protocol}://nowhere.invalid/a").read(5, 10)
    assert QUOTED not in str(caught.value)


@pytest.mark.parametrize("proxy", ["socks5://me:{}@h:1", "http://me:{}@h:port", "http://", "https://me:{}@h:1"])
def test_a_proxy_of_another_kind_is_refused_at_once(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", proxy.format(QUOTED))
    with pytest.raises(
        DataError, match=r"the environment's HTTP_PROXY is not an HTTP proxy: .*host:port, with user:password@ "
    ) as caught:
        RemoteFile("http://nowhere.invalid/a").read(5, 10)
    assert caught.value.reason == "unopenable"
    assert QUOTED not in str(caught.value)


def test_the_port_is_named_only_where_it_is_not_the_usual_one(
    proxy: ProxyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signed URL is good for the name in it."""
    monkeypatch.setenv("http_proxy", at(proxy))
    proxy.faults = [403] * 9
    for host in ("nowhere.invalid", "[2001:db8::1]"):
        with pytest.raises(DataError):
            RemoteFile(f"http://{host}/a?X-Amz-Signature=b").read(5, 10)
        assert proxy.asked[-1] == ("GET", f"http://{host}/a?X-Amz-Signature=b")
        assert proxy.headers["Host"] == host


def test_s3_by_signed_urls(proxy: ProxyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as endpoint:
        options: dict[str, Any] = {"key": "a-key", "secret": "a-secret", "endpoint_url": endpoint}
        fs = fsspec.filesystem("s3", **options)
        fs.mkdir("proxied")
        fs.pipe("proxied/a", DATA)
        monkeypatch.setenv("http_proxy", at(proxy))
        assert RemoteFile("s3://proxied/a", Access(options)).read(5, 500_000) == DATA[5:500_005]
        assert [target for _, target in proxy.asked if "Signature=" in target], "by our own requests"
