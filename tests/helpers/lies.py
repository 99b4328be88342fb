"""Wrong answers of servers, proxies and caches, byte by byte: ``LIES``, by what a reader would call them.

Each is asked as ``Served.lie``. ``wire`` writes as it is; a client that goes away meanwhile ends the answer.
"""

import contextlib
import gzip
import itertools
import random
from collections.abc import Callable
from typing import Any

from fault_server import Lie, Served

PAGE = b"<!DOCTYPE html>\n<html><head><title>502</title></head>\n<body>Busy. Come back later.</body></html>\n"


def wire(handler: Any, *pieces: bytes, each: float = 0.0) -> bool:
    """Send, waiting ``each`` seconds before every piece. True: the answer is given."""
    with contextlib.suppress(OSError):
        for piece in pieces:
            if each and handler.server.ending.wait(each):
                break
            handler.wfile.write(piece)
            handler.wfile.flush()
    return True


def head(status: str, *headers: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode("latin-1")


def part(file: Served, first: int, last: int | None) -> bytes:
    return file.data[first : None if last is None else last + 1]


def place(file: Served, first: int, count: int) -> str:
    return f"Content-Range: bytes {first}-{first + count - 1}/{len(file.data)}"


def sound(file: Served, first: int, last: int | None, *headers: str) -> bytes:
    """A sound answer's head, with headers before its own."""
    count = len(part(file, first, last))
    own = (f"Content-Length: {count}", place(file, first, count), f"ETag: {file.etag}")
    return head("206 Partial Content", *headers, *own)


def first_times(count: int, lie: Lie) -> Lie:
    """The first answers lie, those that follow are honest."""
    left = itertools.count(count, -1)
    return lambda handler, file, first, last: next(left) > 0 and lie(handler, file, first, last)


def _answers(status: str, *headers: str, body: bytes = b"") -> Lie:
    """The same, whatever is asked."""
    length = f"Content-Length: {len(body)}"
    return lambda handler, *_: wire(handler, head(status, *headers, length), body)


def _instead(change: Callable[[bytes], bytes], *headers: str) -> Lie:
    """The bytes that are asked for, but changed; with their true length."""

    def lie(handler: Any, file: Served, first: int, last: int | None) -> bool:
        data = part(file, first, last)
        body = change(data)
        own = (f"Content-Length: {len(body)}", place(file, first, len(data)), f"ETag: {file.etag}", *headers)
        return wire(handler, head("206 Partial Content", *own), body)

    return lie


def _labelled(label: Callable[[Served, int, int], str]) -> Lie:
    """The bytes that are asked for under another ``Content-Range``."""

    def lie(handler: Any, file: Served, first: int, last: int | None) -> bool:
        body = part(file, first, last)
        headers = (f"Content-Length: {len(body)}", label(file, first, len(body)), f"ETag: {file.etag}")
        return wire(handler, head("206 Partial Content", *headers), body)

    return lie


def _short(handler: Any, file: Served, first: int, last: int | None) -> bool:
    body = part(file, first, last)[:3000]
    headers = (f"Content-Length: {len(body)}", place(file, first, len(body)), f"ETag: {file.etag}")
    return wire(handler, head("206 Partial Content", *headers), body)


def _short_of_what_it_says(handler: Any, file: Served, first: int, last: int | None) -> bool:
    body = part(file, first, last)
    headers = (place(file, first, len(body)), f"ETag: {file.etag}", f"Content-Length: {len(body[:3000])}")
    return wire(handler, head("206 Partial Content", *headers), body[:3000])


def _breaks_off(handler: Any, file: Served, first: int, last: int | None) -> bool:
    body = part(file, first, last)
    cut = random.Random(f"{first} {last}").randrange(len(body) + 1)
    return wire(handler, sound(file, first, last), body[:cut])


def _whole(handler: Any, file: Served, first: int, last: int | None) -> bool:
    return wire(handler, head("200 OK", f"Content-Length: {len(file.data)}", f"ETag: {file.etag}"), file.data)


def _whole_too_long(handler: Any, file: Served, first: int, last: int | None) -> bool:
    return wire(handler, head("200 OK", f"Content-Length: {len(file.data) + 999}"), file.data)


def _chunks(data: bytes, size: int = 1000) -> bytes:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def _chunked(change: Callable[[bytes], bytes]) -> Lie:
    start = head("200 OK", "Transfer-Encoding: chunked", 'ETag: "one"')
    return lambda handler, file, *_: wire(handler, start, change(_chunks(file.data) + b"0\r\n\r\n"))


def _trailers(handler: Any, file: Served, first: int, last: int | None) -> bool:
    start = head("200 OK", "Transfer-Encoding: chunked", 'ETag: "one"')
    drip = (b"X-Trailer: 1\r\n" for _ in range(10_000))
    return wire(handler, start + _chunks(file.data) + b"0\r\n") and wire(handler, *drip, each=0.02)


def _body_drips(handler: Any, file: Served, first: int, last: int | None) -> bool:
    pieces = (bytes([byte]) for byte in part(file, first, last))
    return wire(handler, sound(file, first, last)) and wire(handler, *pieces, each=0.02)


def _head_drips(handler: Any, file: Served, first: int, last: int | None) -> bool:
    start = (bytes([byte]) for byte in sound(file, first, last, *[f"X-{n}: {n}" for n in range(90)]))
    return wire(handler, *start, each=0.02) and wire(handler, part(file, first, last))


def _line_drips(handler: Any, *_: Any) -> bool:
    return wire(handler, *(b"H" for _ in range(10_000)), each=0.02)


def _many_headers(handler: Any, file: Served, first: int, last: int | None) -> bool:
    return wire(handler, sound(file, first, last, *[f"X-{n}: {n}" for n in range(5000)]), part(file, first, last))


def _interim(status: str, count: int, each: float = 0.0) -> Lie:
    def lie(handler: Any, file: Served, first: int, last: int | None) -> bool:
        hints = (head(status, "Link: </a>") for _ in range(count))
        return wire(handler, *hints, each=each) and wire(handler, sound(file, first, last), part(file, first, last))

    return lie


def _redirects(location: str | None) -> Lie:
    return _answers("302 Found", *([] if location is None else [f"Location: {location}"]))


def _new_etag(handler: Any, file: Served, first: int, last: int | None) -> bool:
    body = part(file, first, last)
    etag = f'ETag: "{len(handler.server.asked)}"'
    headers = (f"Content-Length: {len(body)}", place(file, first, len(body)), etag)
    return wire(handler, head("206 Partial Content", *headers), body)


def _grows(handler: Any, file: Served, first: int, last: int | None) -> bool:
    body, total = part(file, first, last), len(file.data) + len(handler.server.asked)
    headers = (f"Content-Length: {len(body)}", f"Content-Range: bytes {first}-{first + len(body) - 1}/{total}")
    return wire(handler, head("206 Partial Content", *headers), body)


def _raw(data: bytes) -> Lie:
    return lambda handler, *_: wire(handler, data)


def _stalls(handler: Any, file: Served, first: int, last: int | None) -> bool:
    body = part(file, first, last)
    wire(handler, sound(file, first, last), body[: len(body) // 2])
    handler.server.ending.wait(20)
    return True


def _part_of_zipped(handler: Any, file: Served, first: int, last: int | None) -> bool:
    """As the standard has it: the range is one of the compressed file."""
    data = gzip.compress(file.data, 1)
    body = data[first : None if last is None else last + 1]
    if not body:
        return wire(handler, head("416 Range Not Satisfiable", f"Content-Range: bytes */{len(data)}"))
    label = f"Content-Range: bytes {first}-{first + len(body) - 1}/{len(data)}"
    return wire(handler, head("206 Partial", f"Content-Length: {len(body)}", label, "Content-Encoding: gzip"), body)


def _without_length(*headers: str, ranged: bool = True) -> Lie:
    """The bytes that are asked for, whose end is the connection's."""

    def lie(handler: Any, file: Served, first: int, last: int | None) -> bool:
        body = part(file, first, last) if ranged else file.data
        own = (place(file, first, len(body)),) if ranged else ()
        return wire(handler, head("206 Partial Content" if ranged else "200 OK", *own, *headers), body)

    return lie


def _zipped(handler: Any, file: Served, first: int, last: int | None) -> bool:
    body = gzip.compress(file.data, 1)
    return wire(handler, head("200 OK", f"Content-Length: {len(body)}", "Content-Encoding: gzip"), body)


LIES: dict[str, Lie] = {
    "sends fewer bytes than asked for, and says so": _short,
    "sends fewer bytes than it says": _short_of_what_it_says,
    "breaks off somewhere, each time": _breaks_off,
    "says a length that is too long": _whole_too_long,
    "stalls within the body": _stalls,
    "drips the body": _body_drips,
    "drips headers": _head_drips,
    "drips a status line without an end": _line_drips,
    "sends 5,000 headers": _many_headers,
    "says 100 Continue, then answers": _interim("100 Continue", 3),
    "says 103 Early Hints, then answers": _interim("103 Early Hints", 3),
    "says 100 Continue for ever": _interim("100 Continue", 100_000),
    "says 100 Continue now and then": _interim("100 Continue", 10_000, 0.02),
    "says 103 Early Hints for ever": _interim("103 Early Hints", 100_000),
    "drips trailers behind the chunks": _trailers,
    "sends other bytes than asked for": _labelled(lambda f, first, n: place(f, first + 7, n)),
    "leaves Content-Range out": _labelled(lambda *_: "X-None: 0"),
    "sends a Content-Range that is none": _labelled(lambda *_: "Content-Range: bytes some-more/\xb2"),
    "sends a range beyond the file": _labelled(
        lambda f, first, n: f"Content-Range: bytes {first}-{first + n}/{n // 2}"
    ),
    "says a size of 30 digits": _labelled(lambda f, first, n: f"Content-Range: bytes {first}-{first + n}/{'9' * 30}"),
    "says a size of a petabyte": _labelled(
        lambda f, first, n: f"Content-Range: bytes {first}-{first + n - 1}/{10**15}"
    ),
    "does not say the size": _labelled(lambda f, first, n: f"Content-Range: bytes {first}-{first + n - 1}/*"),
    "sends several parts for one range": _answers(
        "206 Partial Content", "Content-Type: multipart/byteranges; boundary=x", body=b"--x\r\n\r\nabc\r\n--x--\r\n"
    ),
    "sends an empty 206": _instead(lambda data: b""),
    "sends more bytes than asked for": _instead(lambda data: data + b"more" * 5000),
    "answers 200 with all of it": _whole,
    "answers 200 in chunks": _chunked(lambda body: body),
    "ends before the last chunk": _chunked(lambda body: body[: len(body) * 2 // 3]),
    "sends chunks whose sizes are none": _chunked(lambda body: b"zz\r\n" + body),
    "sends a chunk of negative size": _chunked(lambda body: b"-5\r\n" + body),
    "compresses it unasked": _zipped,
    "compresses each part unasked": _instead(gzip.compress, "Content-Encoding: gzip"),
    "sends parts of it compressed": _part_of_zipped,
    "says no length": _without_length(),
    "says a negative length": _without_length("Content-Length: -1"),
    "answers 200 without a length": _without_length(ranged=False),
    "answers 200 and a negative length": _without_length("Content-Length: -5", ranged=False),
    "sends a page instead, with status 200": _answers("200 OK", "Content-Type: text/html", body=PAGE),
    "answers 204": _raw(head("204 No Content")),
    "answers 304": _raw(head("304 Not Modified")),
    "answers 416": _answers("416 Range Not Satisfiable"),
    "answers 500": _answers("500 Internal Server Error"),
    "answers 503, come back at once": _answers("503 Service Unavailable", "Retry-After: 0"),
    "answers 503, come back some day": _answers("503 Service Unavailable", "Retry-After: Fri, 99 Foo 99999 \xb2"),
    "answers 503, come back after \xb2": _answers("503 Service Unavailable", "Retry-After: \xb2"),
    "answers 429": _answers("429 Too Many Requests"),
    "answers 403": _answers("403 Forbidden"),
    "answers 404": _answers("404 Not Found"),
    "answers what is no HTTP": _raw(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "answers a status that is none": _raw(b"HTTP/1.1 2x6 ?\r\n\r\n"),
    "answers noise": _raw(random.Random(5).randbytes(5000)),
    "closes without an answer": _raw(b""),
    "has another ETag each time": _new_etag,
    "has another size each time": _grows,
    "redirects to http://[::1": _redirects("http://[::1"),
    "redirects to a port that is none": _redirects("http://127.0.0.1:port/a"),
    "redirects to port 99999": _redirects("http://127.0.0.1:99999/a"),
    "redirects to file:///etc/passwd": _redirects("file:///etc/passwd"),
    "redirects to an unknown scheme": _redirects("gopher://127.0.0.1/a"),
    "redirects to no host": _redirects("http:///a"),
    "redirects to a host with a blank": _redirects("http://a%20b\x01/a"),
    "redirects to itself": lambda handler, *_: _redirects(handler.path)(handler, *_),
    "redirects without saying where to": _redirects(None),
}
