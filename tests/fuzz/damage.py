"""Damage to bytes, as disks, transfers and malice do it."""

import numpy as np

from fuzz.values import pick

# Lengths, sizes and offsets that readers may believe, in either byte order.
BELIEVED = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def damaged(content, rng):
    """Some bytes with 1 to 4 changes, and what was done."""
    done = []
    for _ in range(int(rng.integers(1, 5))):
        name, do = pick(rng, DAMAGES)
        content = do(content, rng)
        done.append(name)
    return content, ", ".join(done)


def _position(content, rng):
    """Anywhere, but half of the time near the start, where headers are."""
    end = min(len(content), 256) if rng.random() < 0.5 else len(content)
    return int(rng.integers(max(end, 1)))


def _range(content, rng):
    start = _position(content, rng)
    return start, start + int(pick(rng, (1, 2, 4, 8, 33, 200, 5000)))


def _flip(content, rng):
    found = bytearray(content or b"\0")
    found[_position(found, rng)] ^= 1 << int(rng.integers(8))
    return bytes(found)


def _cut(content, rng):
    return content[: _position(content, rng)]


def _remove(content, rng):
    start, end = _range(content, rng)
    return content[:start] + content[end:]


def _insert(content, rng):
    start, end = _range(content, rng)
    return content[:start] + rng.integers(0, 256, end - start).astype(np.uint8).tobytes() + content[start:]


def _repeat(content, rng):
    start, end = _range(content, rng)
    return content[:end] + content[start:]


def _zero(content, rng):
    start, end = _range(content, rng)
    length = len(content[start:end])
    return content[:start] + bytes(length) + content[start + length :]


def _believed(content, rng):
    start = _position(content, rng)
    value = pick(rng, BELIEVED).to_bytes(4, pick(rng, ("little", "big")))
    return content[:start] + value + content[start + 4 :]


DAMAGES = (
    ("flip", _flip),
    ("cut", _cut),
    ("remove", _remove),
    ("insert", _insert),
    ("repeat", _repeat),
    ("zero", _zero),
    ("believed", _believed),
)
