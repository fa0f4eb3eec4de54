"""A model is one safetensors file: arrays, and a JSON text with the rest. Data, never code.

A file is accepted only if its digest fits (so damage is noticed) and the model it holds is consistent (so that a file
made to deceive cannot make a kernel read out of range).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import HedgerowError, ModelError
from hedgerow.filters import FeatureSet
from hedgerow.image_writing import atomic_path
from hedgerow.trees import Forest, ForestStack

FORMAT = "hedgerow"
VERSION = 1
_FOREST_DTYPES = {
    "root": np.int32,
    "left_child": np.int32,
    "threshold": np.float32,
    "channel": np.int32,
    "offset": np.float32,
    "radius": np.int32,
    "weight": np.float32,
    "leaf_index": np.int32,
    "votes": np.float32,
}
_STATISTICS = ("input_mean", "input_std", "mean", "std")


def save(model: ForestStack, path: str | Path) -> int:
    """Write a model; returns the size of the file in bytes. An interrupted write leaves what was there before."""
    from safetensors.numpy import save_file

    arrays = {f"features.{name}": getattr(model.features, name) for name in _STATISTICS}
    for k, forest in enumerate(model.levels):
        arrays |= {f"level{k}.{name}": getattr(forest, name) for name in _FOREST_DTYPES}
    arrays = {name: _narrowest(array) for name, array in arrays.items()}
    description = {
        "kind": "stack",
        "features": model.features.to_dict(),
        "n_levels": model.n_levels,
        "classes": list(model.classes),
        "unlabelled": model.unlabelled,
        "image_dtype": model.image_dtype,
        "settings": model.settings,
    }
    text = json.dumps(description)
    metadata = {"format": FORMAT, "version": str(VERSION), "model": text, "digest": _digest(text, arrays)}
    with atomic_path(path) as temporary:
        save_file(arrays, temporary, metadata=metadata)
    return Path(path).stat().st_size


def load(path: str | Path) -> ForestStack:
    """Read a model that `save` wrote; a damaged, edited or foreign file is refused with a ModelError."""
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"there is no model file {path}; give the file that `hedgerow train` wrote.")
    try:
        return _load(path)
    except HedgerowError as error:
        raise ModelError(f"cannot load {path}: {error}") from error
    except Exception as error:  # whatever the bytes, the answer is one sentence
        raise ModelError(
            f"cannot load {path}: it is not a complete Hedgerow model; copy the file again, or train again."
        ) from error


def _load(path: Path) -> ForestStack:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise ModelError("it was not written by Hedgerow; give the file that `hedgerow train` wrote.")
        version = int(metadata["version"])
        if version > VERSION:
            raise ModelError(f"it has format version {version} and this is {VERSION}; install a newer Hedgerow.")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if metadata["digest"] != _digest(metadata["model"], arrays):
        raise ModelError("its content does not fit its digest, so it is damaged or was edited; copy it again.")
    return _rebuild(json.loads(metadata["model"]), arrays)


def _rebuild(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> ForestStack:
    settings = description["features"]
    statistics = {name: arrays[f"features.{name}"].astype(np.float32) for name in _STATISTICS}
    features = FeatureSet(**{**settings, "sigmas": tuple(settings["sigmas"])}, **statistics)
    features.validate()
    classes = tuple(int(value) for value in description["classes"])
    levels = []
    for k in range(int(description["n_levels"])):
        parts = {name: arrays[f"level{k}.{name}"].astype(dtype) for name, dtype in _FOREST_DTYPES.items()}
        levels.append(Forest(**parts, n_channels=features.n_features + (len(classes) if k else 0)))
    model = ForestStack(
        features,
        tuple(levels),
        classes,
        int(description["unlabelled"]),
        str(description["image_dtype"]),
        dict(description["settings"]),
    )
    model.validate()
    return model


def _narrowest(array: np.ndarray) -> np.ndarray:
    """The same values in the smallest type that holds each of them exactly."""
    for dtype in (np.uint8, np.int8, np.uint16, np.int16, np.float16, np.int32, np.float32):
        with np.errstate(all="ignore"):
            small = array.astype(dtype)
        if np.array_equal(small.astype(array.dtype), array) and not np.signbit(array[array == 0]).any():
            return np.ascontiguousarray(small)
    return np.ascontiguousarray(array)


def _digest(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def description(model: ForestStack) -> dict[str, Any]:
    """What `hedgerow info` shows, JSON-ready."""
    return {
        "classes": list(model.classes),
        "features": model.features.to_dict() | {"names": list(model.features.names)},
        "receptive_field": model.receptive_field,
        "levels": [
            {
                "trees": forest.n_trees,
                "nodes": forest.n_nodes,
                "leaves": forest.n_leaves,
                "depth": int(forest.depth.max()),
                "reach": forest.reach,
            }
            for forest in model.levels
        ],
        **{key: model.settings[key] for key in ("n_images", "held_out", "config") if key in model.settings},
    }

