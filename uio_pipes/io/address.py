"""HTTP URLs taken apart, and redirects followed. A malformed URL is an error of the data, raised at once."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from uio_pipes.base.errors import DataError
from uio_pipes.io.proxies import Proxy, proxy_for

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
