"""Redirects in aiohttp, which is used for options that our own HTTP lacks: credentials go to no other server.

That changing ``redirect.headers`` changes the next request is not documented; tests/io/test_redirects.py pins it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import fsspec

from uio_pipes.base.errors import DataError

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
