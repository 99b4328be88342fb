"""Damages to a file of bytes: each is drawn by a generator, and aimed anywhere, or at given places."""

import random
from collections.abc import Callable, Sequence

BLOCK = 512
SIZES = (1, 17, 512, 1024, 4096, 10_240, 32_768)  # bytes of a run

Damage = Callable[[bytearray, int, random.Random], None]


def _flip(data: bytearray, at: int, draw: random.Random) -> None:
    data[at] ^= 1 << draw.randrange(8)


def _overwrite(data: bytearray, at: int, draw: random.Random) -> None:
    size = min(draw.choice(SIZES), len(data) - at)
    data[at : at + size] = draw.randbytes(size)


def _zero(data: bytearray, at: int, draw: random.Random) -> None:
    size = min(draw.choice(SIZES), len(data) - at)
    data[at : at + size] = bytes(size)


def _zero_blocks(data: bytearray, at: int, draw: random.Random) -> None:
    at -= at % BLOCK
    size = min(BLOCK * draw.choice((1, 2, 3, 8, 20, 64, 100)), len(data) - at)
    data[at : at + size] = bytes(size)


def _cut(data: bytearray, at: int, draw: random.Random) -> None:
    del data[max(1, at) :]


def _delete(data: bytearray, at: int, draw: random.Random) -> None:
    del data[at : at + draw.choice(SIZES)]


def _insert(data: bytearray, at: int, draw: random.Random) -> None:
    data[at:at] = draw.choice((draw.randbytes, bytes))(draw.choice(SIZES))


def _double(data: bytearray, at: int, draw: random.Random) -> None:
    at -= at % BLOCK
    size = BLOCK * draw.choice((1, 2, 5, 20))
    data[at:at] = data[at : at + size]


def _swap(data: bytearray, at: int, draw: random.Random) -> None:
    size = min(BLOCK * draw.choice((1, 2, 5, 20)), len(data) // 2 // BLOCK * BLOCK)
    if not size:
        return
    one = min(at - at % BLOCK, len(data) - size)
    two = min(draw.randrange(len(data)) // BLOCK * BLOCK, len(data) - size)
    if abs(one - two) >= size:
        data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]


DAMAGES: dict[str, Damage] = {
    "a bit flipped": _flip,
    "bytes overwritten": _overwrite,
    "bytes zeroed": _zero,
    "blocks of 512 bytes zeroed": _zero_blocks,
    "cut off": _cut,
    "bytes cut out": _delete,
    "bytes put in": _insert,
    "blocks doubled": _double,
    "blocks swapped": _swap,
}


def damaged(data: bytes, damage: str, targets: Sequence[int], draw: random.Random) -> bytes:
    """``data`` with one damage: half of them anywhere, the others at one of ``targets``, or just beside it."""
    at = draw.choice(targets) + draw.choice((0, 0, -1, 1, 300)) if draw.random() < 0.5 else draw.randrange(len(data))
    changed = bytearray(data)
    DAMAGES[damage](changed, min(max(at, 0), len(data) - 1), draw)
    return bytes(changed)
