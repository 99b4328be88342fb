"""The HTTP proxies that the environment names: ``http_proxy``, ``https_proxy`` and ``no_proxy``, in either case."""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

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
