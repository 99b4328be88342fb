"""Notes on utterances from the damaged part of a compressed stream that came out before the damage showed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from uio_pipes.base.errors import DataError
from uio_pipes.formats.findings import finding
from uio_pipes.formats.tar.reader import TarReader


def suspects(read: Callable[[], TarReader], sound: int, url: str) -> Iterator[DataError]:
    """Yield a note for each utterance that ends after byte ``sound``, until the damage is met again.

    ``read`` opens the shard at its beginning: nothing has to be remembered, and a resumed run finds the same.
    """
    try:
        reader = read()
    except DataError:
        return  # out of reach now: the damage itself is reported
    try:
        while reader.sound is None:
            try:
                utterance = reader.next()
            except DataError:
                continue
            if reader.tell()[0] > sound:
                yield suspect(url, utterance.key, utterance.offset)
    except StopIteration:
        return
    finally:
        reader.close()


def suspect(url: str, key: str, offset: int) -> DataError:
    """Return the note for one utterance."""
    message = "it came from the damaged part of the stream, before the damage showed: it may be wrong; fetch the file "
    return finding("suspect", f"{message}again, or leave it out with exclude", url, key, offset)


def unchecked(url: str) -> DataError:
    """Return the note for a shard without checksums."""
    message = (
        "the compressed stream has no checksum of its content, so damage may go unnoticed: compress with one "
        "(zstd --check, xz --check=crc64, uio pack --compress), or index it and read it with verify='crc'"
    )
    return DataError("unchecked_stream", message, url=url)
