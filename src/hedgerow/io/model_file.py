"""A model is one safetensors file: arrays, and a JSON text with the rest. Data, never code.

A file is accepted only if its digest fits (so damage is noticed) and the model it holds is consistent (so that a file
made to deceive cannot make a kernel read out of range).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow import extras
from hedgerow.errors import HedgerowError, ModelError
from hedgerow.features.bank import FeatureSet
from hedgerow.files import atomic_path
from hedgerow.forest.arrays import OUTPUTS, Forest, ForestStack
from hedgerow.images.arrays import MAX_CLASSES

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet

FORMAT = "hedgerow"
VERSION = 1
# What the settings allow. A file that asks for more would only make prediction ask for absurd memory.
MAX_LEVELS, MAX_OFFSET, MAX_RADIUS = 20, 2048, 256
INT32 = np.iinfo(np.int32)
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


def save(model: ForestStack | StackNet, path: str | Path) -> int:
    """Write a model; returns the size of the file in bytes. An interrupted write leaves what was there before."""
    from safetensors.numpy import save as to_bytes

    # A network is kept with the forests that it was mapped from.
    stack = model if isinstance(model, ForestStack) else model.stack
    arrays = {f"features.{name}": getattr(stack.features, name) for name in _STATISTICS}
    for k, forest in enumerate(stack.levels):
        arrays |= {f"level{k}.{name}": getattr(forest, name) for name in _FOREST_DTYPES}
        if forest.sharpness is not None:
            arrays[f"level{k}.sharpness"] = forest.sharpness
    description = {
        "kind": "stack",
        "features": stack.features.to_dict(),
        "n_levels": stack.n_levels,
        "classes": [int(value) for value in stack.classes],
        "unlabelled": int(stack.unlabelled),
        "image_dtype": stack.image_dtype,
        "settings": stack.settings,
    }
    # Only what a forest mapped back from a network has; a plain forest's file says nothing of it.
    description |= {"output": stack.output} if stack.output != "normalise" else {}
    description |= {"soft": True, "tolerance": stack.tolerance} if stack.is_soft else {}
    if not isinstance(model, ForestStack):
        from hedgerow.io import net_file

        description |= {"kind": "net", "net": net_file.description(model)}
        arrays |= net_file.arrays(model)
    arrays = {name: _narrowest(array) for name, array in arrays.items()}
    document = {"version": VERSION, "model": description, "digest": _digest(VERSION, description, arrays)}
    # One entry only: safetensors writes several in random order, and the same model must give the same bytes.
    content = to_bytes(arrays, metadata={FORMAT: json.dumps(document)})
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
    return Path(path).stat().st_size


def load(path: str | Path) -> ForestStack | StackNet:
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


def _load(path: Path) -> ForestStack | StackNet:
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        if FORMAT not in metadata:
            raise ModelError("it was not written by Hedgerow; give the file that `hedgerow train` wrote.")
        document = json.loads(metadata[FORMAT])
        version = _whole(document["version"], 1, INT32.max, "version")
        if version > VERSION:
            raise ModelError(f"it has format version {version} and this is {VERSION}; install a newer Hedgerow.")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if document["digest"] != _digest(version, document["model"], arrays):
        raise ModelError("it does not fit its digest, so it is damaged or was edited; copy it again.")
    return _rebuild(document["model"], arrays)


def _rebuild(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> ForestStack | StackNet:
    require(description["kind"] in ("stack", "net"), "it holds another kind of model")
    if description["kind"] == "stack":
        return _rebuild_stack(description, arrays)
    extras.require("torch", "a network")
    from hedgerow.io import net_file

    of_net = {name: array for name, array in arrays.items() if name.startswith("net")}
    stack = _rebuild_stack(description, {name: array for name, array in arrays.items() if name not in of_net})
    require(isinstance(description["net"], dict), "its network is not described")
    return net_file.rebuild(stack, description["net"], {name: _widened(a, np.float32) for name, a in of_net.items()})


def _rebuild_stack(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> ForestStack:
    n_levels = _whole(description["n_levels"], 1, MAX_LEVELS, "number of levels")
    expected = {f"features.{name}" for name in _STATISTICS}
    dtypes = _FOREST_DTYPES | ({"sharpness": np.float32} if description.get("soft") is True else {})
    expected |= {f"level{k}.{name}" for k in range(n_levels) for name in dtypes}
    require(arrays.keys() == expected, "its arrays are not those of its levels")
    classes = tuple(_whole(value, INT32.min, INT32.max, "class") for value in description["classes"])
    require(2 <= len(classes) <= MAX_CLASSES, "its number of classes is out of range")
    features = _rebuild_features(description["features"], arrays)
    levels = []
    for k in range(n_levels):
        parts = {name: _widened(arrays[f"level{k}.{name}"], dtype) for name, dtype in dtypes.items()}
        levels.append(Forest(**parts, n_channels=features.n_features + (len(classes) if k else 0)))
    model = ForestStack(
        features,
        tuple(levels),
        classes,
        _whole(description["unlabelled"], INT32.min, INT32.max, "unlabelled value"),
        _short_text(description["image_dtype"]),
        _checked_settings(description["settings"]),
        _choice(description.get("output", "normalise"), OUTPUTS, "output"),
        _number(description.get("tolerance", 0.0), "tolerance"),
    )
    model.validate()
    for forest in levels:
        near = features.kind == "depth" or bool((np.abs(forest.offset) <= MAX_OFFSET).all())
        require(near and bool((forest.radius <= MAX_RADIUS).all()), "a split looks too far")
    return model


def _rebuild_features(settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> FeatureSet:
    statistics = {name: _widened(arrays[f"features.{name}"], np.float32) for name in _STATISTICS}
    sigmas = tuple(settings["sigmas"])
    require(settings["kind"] != "bank" or len(sigmas) > 0, "its filter bank is empty")
    # Before anything is made for each feature: there cannot be more of them than statistics.
    n_means = statistics["mean"].size
    n_inputs = _whole(settings["n_inputs"], 1, n_means, "number of image channels")
    require(n_inputs * len(sigmas) <= n_means, "its features have no statistics")
    values: dict[str, Any] = {**settings, "sigmas": sigmas, **statistics}
    features = FeatureSet(**values)
    features.validate()
    return features


def _checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings are for reading; those that are read one by one must be what they should be."""
    scores = [score["mean_dice"] for score in settings.get("held_out", [])]
    require(all(isinstance(score, float) for score in scores), "its held-out scores are no numbers")
    _whole(settings.get("n_images", 1), 1, INT32.max, "number of images")
    _short_text(settings.get("mapped_back", ""))
    refined = settings.get("refined", [])  # of the network that a soft forest was
    require(isinstance(refined, list) and all(is_record(each) for each in refined), "its history is none")
    return settings


def is_record(value: Any) -> bool:
    """Whether this tells of a refinement what is read one by one: its scores, and the steps of its history."""
    if not isinstance(value, dict):
        return False
    scores, history = value.get("scores"), value.get("history")
    if not isinstance(scores, dict) or not isinstance(history, list) or not history:
        return False
    are_numbers = all(score is None or type(score) in (int, float) for score in scores.values())
    return are_numbers and all(isinstance(entry, dict) and type(entry.get("step")) is int for entry in history)


def require(holds: bool, complaint: str) -> None:
    """Refuse a file that says something impossible."""
    if not holds:
        raise ModelError(f"{complaint}, so it is damaged or was edited; copy it again.")


def _whole(value: Any, low: int, high: int, what: str) -> int:
    require(type(value) is int and low <= value <= high, f"its {what} is out of range")
    return value


def _choice(value: Any, known: tuple[str, ...], what: str) -> str:
    require(isinstance(value, str) and value in known, f"its {what} is unknown")
    return str(value)


def _number(value: Any, what: str) -> float:
    require(type(value) in (int, float), f"its {what} is no number")
    return float(value)


def _short_text(value: Any) -> str:
    require(isinstance(value, str) and len(value) <= 20 and value.isprintable(), "its image type is no name")
    return value


def _narrowest(array: np.ndarray) -> np.ndarray:
    """The same values in the smallest type that holds each of them exactly."""
    for dtype in (np.uint8, np.int8, np.uint16, np.int16, np.float16, np.int32, np.float32):
        small = _cast(array, dtype)
        if small is not None and not np.signbit(array[array == 0]).any():
            return np.ascontiguousarray(small)
    return np.ascontiguousarray(array)


def _widened(array: np.ndarray, dtype: type) -> np.ndarray:
    """The same values in the type that the model works with."""
    wide = _cast(array, dtype)
    if wide is None:
        raise ModelError("an array has impossible values, so it is damaged or was edited; copy it again.")
    return wide


def _cast(array: np.ndarray, dtype: type) -> np.ndarray | None:
    """The array in another type, or None if that changes a value (NaN counts as changed)."""
    with np.errstate(all="ignore"):
        cast: np.ndarray = array.astype(dtype)
        return cast if np.array_equal(cast.astype(array.dtype), array) else None


def _digest(version: int, description: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps([version, description]).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def description(model: ForestStack | StackNet) -> dict[str, Any]:
    """What `hedgerow info` shows, JSON-ready."""
    network: dict[str, Any] = {}
    if not isinstance(model, ForestStack):
        network = {
            "split": model.split,
            "layers": [dataclasses.asdict(layer) for layer in model.layers()],
            "sharpness": [model.level(k).sharpness.to_dict() for k in range(model.n_levels)],
            "refined": model.settings.get("refined", []),
        }
        model = model.stack
    forests: dict[str, Any] = {
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
    if "mapped_back" in model.settings:
        forests |= {"mapped_back": model.settings["mapped_back"], "soft": model.is_soft, "tolerance": model.tolerance}
    return network | forests
