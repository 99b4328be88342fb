"""HTTP URLs taken apart, the proxies that the environment names, and redirects, which carry credentials to no other
server.

That changing ``redirect.headers`` changes the next request is not documented; tests/io/test_redirects.py pins it.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import fsspec

from uio_pipes.base.errors import DataError


@dataclass(frozen=True)
class Proxy:
    """A proxy. ``credentials``: the value of ``Proxy-Authorization``, "" if its URL has none."""

    host: str
    port: int
    credentials: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that are for the proxy alone."""
        return {"Proxy-Authorization": self.credentials} if self.credentials else {}

    def __str__(self) -> str:
        return f"the proxy {self.host}:{self.port}"


@functools.lru_cache(256)
def proxy_for(scheme: str, host: str, port: int) -> Proxy | None:
    """Return the proxy for a server, None if it is reached directly. The environment counts as it is at the first call.

    Raises: DataError ``unopenable`` for a proxy that cannot be used.
    """
    url = getproxies().get(scheme)
    if not url or proxy_bypass(f"{host}:{port}"):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme == "http" and parts.hostname:
            return Proxy(parts.hostname, parts.port or 80, _credentials(parts.username, parts.password))
    except ValueError:
        pass  # its text may hold the password
    remedy = (
        "name one as http://host:port, with user:password@ before the host if it asks for them (%XX for odd characters)"
    )
    message = f"{scheme.upper()}_PROXY of the environment is no HTTP proxy: {remedy}, or add {host} to NO_PROXY"
    raise DataError("unopenable", message)


def _credentials(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    secret = f"{unquote(user)}:{unquote(password or '')}".encode()
    return "Basic " + base64.b64encode(secret).decode()


_PORTS = {"http": 80, "https": 443}
_SAFE = "%/:=&?~#+!$,;'@()*[]"


class Address(NamedTuple):
    """An HTTP URL in parts. ``target``: path and query, quoted as in a request."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: credentials for one origin are sent to no other."""
        return self[:3]

    @property
    def via(self) -> Proxy | None:
        """The proxy through which the server is reached. Raises: DataError ``unopenable``."""
        return proxy_for(*self.origin)

    @property
    def whole(self) -> str:
        """The URL, as a proxy is asked for it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"  # a signature may be for the name alone
        return f"{self.scheme}://{host}{port}{self.target}"


def address(url: str) -> Address:
    """Take a URL apart. Raises: DataError ``unopenable``."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise DataError("unopenable", f"the URL is malformed ({error}): correct it", url=url) from None
    if parts.scheme not in _PORTS:
        raise DataError("unopenable", f"{parts.scheme}:// is not HTTP: correct the URL", url=url)
    if not host:
        raise DataError("unopenable", "the URL names no host: correct it", url=url)
    target = quote(parts.path or "/", safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Address(parts.scheme, host, _PORTS[parts.scheme] if port is None else port, target)


def follow(url: str, location: str | None) -> str:
    """Return the URL that the ``Location`` header of an answer leads to. Raises: DataError ``unopenable``."""
    if not location:
        raise DataError("unopenable", "the server redirects without saying where to: correct the URL", url=url)
    try:
        to = urljoin(url, quote(location.encode("latin-1", "replace"), safe=_SAFE))
        address(to)
    except (ValueError, DataError) as error:
        why = error.message if isinstance(error, DataError) else f"the URL is malformed ({error})"
        raise DataError("unopenable", f"the server redirects to where nothing can be read: {why}", url=url) from None
    return to


_OWN = frozenset(["accept", "accept-encoding", "if-range", "range"])


def discreet(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Extend the options of the file system of ``url`` so that redirects to another origin lose the user's headers."""
    protocol = url.partition("://")[0]
    if protocol not in ("http", "https") or "get_client" in options:
        return dict(options)
    known = fsspec.config.conf.get(protocol, {}).get("client_kwargs", {})
    client = {**known, **(options.get("client_kwargs") or {})}
    client["trace_configs"] = [*client.get("trace_configs", ()), _watch()]
    return {**options, "client_kwargs": client}


@functools.cache
def _watch() -> Any:
    """Return the TraceConfig that watches redirects. The process shares one, because fsspec compares options, and
    reuses a file system only if they are equal."""
    import aiohttp

    watch = aiohttp.TraceConfig()
    watch.on_request_redirect.append(_on_redirect)
    return watch


async def _on_redirect(session: Any, _: object, redirect: Any) -> None:
    from yarl import URL

    try:
        to = redirect.url.join(URL(redirect.response.headers.get("Location", "")))
        if to.origin() == redirect.url.origin():
            return
    except ValueError:
        return  # malformed: aiohttp raises the error
    if session.auth is not None or any(not cookie["domain"] for cookie in session.cookie_jar):
        message = (
            f"a redirect leads to {to.scheme}://{to.host}, which would be sent the auth or the cookies of "
            "client_kwargs: give them as headers, or name the file's URL there"
        )
        raise DataError("unopenable", message)
    for name in [name for name in redirect.headers if name.lower() not in _OWN]:
        redirect.headers.popall(name, None)
