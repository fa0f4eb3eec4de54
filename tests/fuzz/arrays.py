"""Changes to the arrays of a model file: values, number types, shapes, order, and whole forests that nobody grew."""

import numpy as np

from fuzz.values import pick
from helpers.forests import random_forest

EXTREMES = (0, 1, -1, 2, 127, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1)
FRACTIONS = (*EXTREMES, 0.5, -0.5, 1e-30, 1e30, 3.4e38, 1e39, 1e300, np.nan, np.inf, -np.inf)
TYPES = ("u1", "i1", "u2", "i2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?", "c8")
PARTS = ("root", "left_child", "threshold", "channel", "offset", "radius", "weight", "leaf_index", "votes")


def change_arrays(arrays, rng):
    """Change one of the arrays, by name, in place; returns what was done, for people."""
    do = pick(rng, CHANGES)
    name = pick(rng, sorted(arrays)) if arrays else "none"
    if not arrays:
        return "nothing"
    result = do(arrays, name, rng)
    for key, array in arrays.items():
        arrays[key] = np.ascontiguousarray(array)
    return f"{name} {result}"


def _values(arrays, name, rng):
    array = arrays[name].copy()
    is_whole = array.dtype.kind in "iu"
    wide = array.astype(np.int64 if is_whole and rng.random() < 0.7 else np.float64)
    flat = wide.reshape(-1)
    if not flat.size:
        return "is empty"
    where = rng.integers(0, flat.size, int(pick(rng, (1, 1, 2, 5, flat.size))))
    value = pick(rng, EXTREMES if wide.dtype.kind == "i" else FRACTIONS)
    flat[where] = value
    arrays[name] = wide if is_whole or rng.random() < 0.3 else _narrow(wide, array.dtype)
    return f"has {value} in {len(where)} place(s)"


def _narrow(array, dtype):
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _small_change(arrays, name, rng):
    """Of the kind that stays plausible: by one, or by a factor."""
    array = arrays[name].astype(np.float64)
    factor, more = pick(rng, ((1, 1), (1, -1), (2, 0), (-1, 0), (1e6, 0), (1e-6, 0), (0, 0)))
    changed = rng.random(array.shape) < pick(rng, (0.05, 1.0))
    arrays[name] = np.where(changed, array * factor + more, array)
    return f"times {factor:g} plus {more}"


def _raw(arrays, name, rng):
    array = arrays[name].copy()
    raw = array.reshape(-1).view(np.uint8)
    if raw.size:
        raw[rng.integers(0, raw.size, int(rng.integers(1, 4)))] = rng.integers(0, 256)
    arrays[name] = array
    return "has other bytes"


def _type(arrays, name, rng):
    kind = pick(rng, TYPES)
    arrays[name] = _narrow(arrays[name], np.dtype(kind))
    return f"as {kind}"


def _shape(arrays, name, rng):
    array = arrays[name]
    many = int(pick(rng, (2, 17, 65)))
    forms = (
        lambda: array[:-1] if array.ndim else array[None],
        lambda: array[:0] if array.ndim else array[None],
        lambda: array[..., None],
        lambda: array[None],
        lambda: array.T,
        lambda: array.reshape(-1),
        lambda: np.concatenate([array, array]) if array.ndim else array,
        lambda: np.repeat(array, many, axis=-1) if array.ndim else array,
        lambda: array[:, :1] if array.ndim > 1 else array,
    )
    arrays[name] = pick(rng, forms)()
    return f"of shape {arrays[name].shape}"


def _order(arrays, name, rng):
    array = arrays[name]
    if array.ndim and len(array):
        arrays[name] = array[::-1] if rng.random() < 0.3 else array[rng.permutation(len(array))]
    return "in another order"


def _exchange(arrays, name, rng):
    other = pick(rng, sorted(arrays))
    arrays[name], arrays[other] = arrays[other], arrays[name]
    return f"exchanged with {other}"


def _names(arrays, name, rng):
    array = arrays.pop(name)
    new = pick(rng, (None, "surprise", "level9.root", "features.extra", "\x1b[2J", name + "2", "net0.leaf_weight"))
    if new is not None:
        arrays[new] = array
    return "is gone" if new is None else f"called {new!r}"


def _forest(arrays, name, rng):
    """Another forest in place of a level: a tree that is one long path, or many trees, with votes that fit."""
    level = name.split(".")[0]
    if not level.startswith("level") or f"{level}.votes" not in arrays or arrays[f"{level}.votes"].ndim != 2:
        return _values(arrays, name, rng)
    n_classes = arrays[f"{level}.votes"].shape[1]
    if rng.random() < 0.5:
        length = int(pick(rng, (1, 30, 31, 60, 500, 4000, 20_000)))
        parts = _path(length, n_classes)
        done = f"is one path of {length} splits"
    else:
        n_trees, depth = pick(rng, ((1, 0), (1, 14), (40, 5), (300, 3), (20, 30)))
        forest = random_forest(
            rng, n_trees, depth, n_channels=2, n_classes=max(n_classes, 1), n_probes=int(pick(rng, (1, 1, 3))),
            reach=int(pick(rng, (0, 6, 2000))), radii=pick(rng, ((0,), (0, 250))),
            leaf_chance=0.1 if depth < 15 else 0.45,
        )  # fmt: skip
        parts = {part: getattr(forest, part) for part in PARTS}
        done = f"is {n_trees} tree(s) of depth {depth} at most"
    for part, array in parts.items():
        arrays[f"{level}.{part}"] = array
    if f"{level}.sharpness" in arrays:
        arrays[f"{level}.sharpness"] = np.full(len(parts["left_child"]), 3.0, np.float32)
    return done


def _path(length, n_classes):
    """A tree of `length` splits below one another, (N,) with N = 2 length + 1: every left child is a leaf."""
    n = 2 * length + 1
    node = np.arange(n)
    is_split = (node % 2 == 0) & (node < n - 1)
    return {
        "root": np.zeros(1, np.int32),
        "left_child": np.where(is_split, node + 1, -1).astype(np.int32),
        "threshold": np.where(is_split, -1e3, 0).astype(np.float32),
        "channel": np.zeros((n, 1), np.int32),
        "offset": np.zeros((n, 1, 3), np.float32),
        "radius": np.zeros((n, 1), np.int32),
        "weight": np.ones((n, 1), np.float32),
        "leaf_index": np.where(is_split, -1, np.cumsum(~is_split) - 1).astype(np.int32),
        "votes": np.full((length + 1, n_classes), 1 / max(n_classes, 1), np.float32),
    }


CHANGES = (_values, _values, _values, _small_change, _raw, _type, _shape, _order, _exchange, _names, _forest)
