"""A model is one safetensors file with arrays and a JSON text: data, never code.

A file is accepted only if its digest matches, so that damage is noticed, and if its model is consistent, so that a
malicious file cannot make a kernel read out of range.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from hedgerow import extras
from hedgerow.config import ContextConfig, StackConfig
from hedgerow.deep.any_model import parts_of
from hedgerow.documents import read_document
from hedgerow.errors import DAMAGED, HedgerowError, InputError, ModelError, one_line, refuse_unless
from hedgerow.features.registry import rebuild
from hedgerow.files import PathLike, atomic_path, digest
from hedgerow.forest.arrays import OUTPUTS, Forest, ForestStack
from hedgerow.forest.history import are_numbers
from hedgerow.images.array_checks import MAX_CLASSES
from hedgerow.images.legend import Legend
from hedgerow.io import checks
from hedgerow.io.checks import INT32, refinements, short_text, table, whole, widened
from hedgerow.memory import ran_out
from hedgerow.settings import limits_of

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel as AnyModel

FORMAT = "hedgerow"
VERSION = 3
# The limits of the settings. A file that exceeds them would only make prediction need absurd amounts of memory.
MAX_LEVELS, MAX_BOX_RADIUS = limits_of(StackConfig, "n_levels")[1], limits_of(ContextConfig, "radii")[1]
MAX_HEADER = 2**25  # bytes that list the arrays and describe the model: safetensors makes ten times as many of them
MAX_OFFSET_Z = limits_of(ContextConfig, "window_z")[1] // 2
_FOREST_DTYPES = {
    "root": np.int32, "left_child": np.int32, "threshold": np.float32, "channel": np.int32, "offset": np.float32,
    "radius": np.int32, "weight": np.float32, "leaf_index": np.int32, "votes": np.float32,
}  # fmt: skip
_UNSAVED = "the model cannot be saved, because it would not load again"


def save(model: AnyModel, path: PathLike) -> int:
    """Write a model and return the size of the file in bytes. If the write is interrupted, or if the model would not
    load again, an existing file stays as it was.

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> hr.save(stack, "model.hedge") > 1000
    True
    """
    content = file_content(model)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
        _check_loads(temporary)
    return len(content)


def _check_loads(path: Path) -> None:
    """Raise ModelError if a model that was just written would not load again."""
    try:
        _load(path)
    except Exception as error:
        if ran_out(error):
            return  # there is not enough memory for a second copy, which is no fault of the file
        if isinstance(error, OSError):
            raise
        complaint = _complaint(error).replace(DAMAGED, "so correct the model, or make it again")
        raise ModelError(f"{_UNSAVED}: {complaint}.") from error


def file_content(model: AnyModel) -> bytes:
    """The bytes of a model's file. A network is saved with the forests that it comes from, a deep stack with its
    network."""
    if not isinstance(model, ForestStack) and type(model).__name__ not in ("StackNet", "DeepStack"):
        raise ModelError(f"a {type(model).__name__} cannot be saved; give a ForestStack, a StackNet or a DeepStack.")
    stack, net, deep = parts_of(model)
    arrays = {f"features.{name}": array for name, array in stack.features.arrays().items()}
    for k, forest in enumerate(stack.levels):
        arrays |= {f"level{k}.{name}": getattr(forest, name) for name in _FOREST_DTYPES}
        if forest.sharpness is not None:
            arrays[f"level{k}.sharpness"] = forest.sharpness
    description = {
        "kind": "stack",
        "features": stack.features.settings(),
        "n_levels": stack.n_levels,
        "classes": [checks.plain(value) for value in stack.classes],
        "unlabelled": checks.plain(stack.unlabelled),
        "image_dtype": stack.image_dtype,
        "settings": stack.settings,
    }
    # The file of a plain forest does not mention properties that only a forest mapped back from a network has.
    description |= {"output": stack.output} if stack.output != "normalise" else {}
    description |= {"soft": True, "tolerance": stack.tolerance} if stack.is_soft else {}
    description |= {"refined": [record.to_dict() for record in stack.refinements]} if stack.refinements else {}
    description |= {"relaxed": True} if stack.relaxed else {}
    description |= {"known": asdict(stack.known)} if stack.known.seen else {}
    description |= {"legend": stack.legend.to_list()} if stack.legend else {}
    if net is not None:
        from hedgerow.io import net_file  # needs PyTorch

        description |= {"kind": "net", "net": net_file.description(net)}
        arrays |= net_file.arrays(net)
    if deep is not None:
        from hedgerow.io import deep_file  # needs PyTorch

        description |= {"kind": "deep", "deep": deep_file.description(deep)}
        arrays |= deep_file.arrays(deep)
    arrays = {name: checks.narrowest(array) for name, array in arrays.items()}
    try:
        document = {"version": VERSION, "model": description, "digest": digest([VERSION, description], arrays)}
        # A single entry: safetensors writes several in random order, but the same model must give the same bytes.
        content: bytes = to_bytes(arrays, metadata={FORMAT: json.dumps(document)})
    except (TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"{_UNSAVED}: {one_line(error)}; check its settings.") from error
    return content


def load(path: PathLike) -> AnyModel:
    """Read a model that `save` wrote; raises ModelError if the file is damaged, edited or foreign.

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> size = hr.save(stack, "model.hedge")
    >>> bool((hr.load("model.hedge").predict(images[0]) == stack.predict(images[0])).all())
    True
    """
    path = Path(path)
    if not path.is_file():
        raise ModelError(f"there is no model file {path}; give the file that `hedgerow train` wrote.")
    try:
        return _load(path)
    except Exception as error:
        raise ModelError(f"cannot load {path}: {_complaint(error)}.") from error


def _complaint(error: Exception) -> str:
    """The problem of a file as part of one sentence, whatever bytes the file holds."""
    if isinstance(error, HedgerowError):
        return one_line(error)
    if ran_out(error):
        return "there is not enough memory for it; close other programs, or use a larger machine"
    return "it is not a complete Hedgerow model; copy the file again, or train again"


def _refuse_long_header(path: Path) -> None:
    with open(path, "rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")  # safetensors refuses what is longer than the file
    refuse_unless(n_bytes <= MAX_HEADER, f"its header has {n_bytes:,} bytes, expected at most {MAX_HEADER:,}")


def _load(path: Path) -> AnyModel:
    _refuse_long_header(path)
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        if FORMAT not in metadata:
            raise ModelError("it was not written by Hedgerow; give the file that `hedgerow train` wrote.")
        try:
            document = table(read_document(metadata[FORMAT]), "description")
        except ValueError as error:
            raise ModelError(f"{error}, {DAMAGED}.") from error
        version = whole(document["version"], 1, INT32.max, "version")
        if version > VERSION:
            raise ModelError(
                f"its format version {version} is newer than {VERSION}, the latest that this Hedgerow reads; install a "
                "newer Hedgerow."
            )
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    if document["digest"] != digest([version, document["model"]], arrays):
        raise ModelError("it does not match its digest, so it is damaged or was edited; copy it again.")
    return _rebuild(*_as_latest(version, document["model"], arrays))


def _rebuild(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> AnyModel:
    refuse_unless(description["kind"] in ("stack", "net", "deep"), "it holds an unknown kind of model")
    if description["kind"] == "stack":
        return _rebuild_stack(description, arrays)
    extras.require("torch", "a network")
    from hedgerow.io import deep_file, net_file  # need PyTorch

    of_nets = {name: array for name, array in arrays.items() if name.startswith(("net", deep_file.PREFIX))}
    stack = _rebuild_stack(description, {name: array for name, array in arrays.items() if name not in of_nets})
    weights = {name: widened(array, np.float32) for name, array in of_nets.items()}
    deep = {name: weights.pop(name) for name in list(weights) if name.startswith(deep_file.PREFIX)}
    net = net_file.rebuild(stack, table(description["net"], "network"), weights)
    if description["kind"] == "net":
        refuse_unless(not deep, "it holds arrays that belong to no network")
        return net
    return deep_file.rebuild(net, table(description["deep"], "convolutional level"), deep)


def _rebuild_stack(description: dict[str, Any], arrays: dict[str, np.ndarray]) -> ForestStack:
    n_levels = whole(description["n_levels"], 1, MAX_LEVELS, "number of levels")
    dtypes = _FOREST_DTYPES | ({"sharpness": np.float32} if description.get("soft") is True else {})
    of_features = {name[9:]: widened(a, np.float32) for name, a in arrays.items() if name.startswith("features.")}
    expected = {f"level{k}.{name}" for k in range(n_levels) for name in dtypes}
    expected |= {f"features.{name}" for name in of_features}  # the features check their own arrays
    refuse_unless(arrays.keys() == expected, "its arrays do not match its levels")
    classes = tuple(whole(value, INT32.min, INT32.max, "class") for value in description["classes"])
    refuse_unless(2 <= len(classes) <= MAX_CLASSES, "its number of classes is out of range")
    features = rebuild(table(description["features"], "feature description"), of_features)
    levels = []
    for k in range(n_levels):
        parts = {name: widened(arrays[f"level{k}.{name}"], dtype) for name, dtype in dtypes.items()}
        levels.append(Forest(**parts, n_channels=features.n_features + (len(classes) if k else 0)))
    model = ForestStack(
        features,
        tuple(levels),
        classes,
        whole(description["unlabelled"], INT32.min, INT32.max, "unlabelled value"),
        short_text(description["image_dtype"], "image type"),
        _checked_settings(table(description["settings"], "settings entry")),
        checks.choice(description.get("output", "normalise"), OUTPUTS, "output"),
        checks.number(description.get("tolerance", 0.0), "tolerance"),
        refinements(description.get("refined", [])),
        checks.flag(description.get("relaxed", False), "softening"),
        legend=_legend(description.get("legend", [])),
        known=checks.known(description.get("known", {})),
    )
    model.validate()
    for forest in levels:
        near = bool((np.abs(forest.offset[..., 1:]) <= features.max_offset).all())
        near = near and bool((np.abs(forest.offset[..., 0]) <= MAX_OFFSET_Z).all())
        refuse_unless(near and bool((forest.radius <= MAX_BOX_RADIUS).all()), "a split looks too far")
    return model


def _legend(rows: Any) -> Legend:
    try:
        return Legend.from_list(rows)
    except InputError as error:
        raise ModelError(f"its classes have impossible names or colours, {DAMAGED}.") from error


def _checked_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings are for information; those that are read individually must be valid."""
    scores = [score["mean_dice"] for score in settings.get("held_out", [])]
    refuse_unless(are_numbers(*scores) and None not in scores, "its held-out scores are not numbers")
    whole(settings.get("n_images", 1), 1, INT32.max, "number of images")
    reserved = settings.get("reserved", {"n_images": 1, "mean_dice": 0.0})
    refuse_unless(are_numbers(reserved["mean_dice"]) and type(reserved["n_images"]) is int, "its score is not a number")
    short_text(settings.get("mapped_back", ""), "method of mapping back")
    table(settings.get("config", {}), "record of how it was grown")
    return settings


# Constants of the program in version 1, and part of the file since version 2.
PROPORTIONS = {"dog_ratio": 0.66, "structure_ratio": 0.5, "truncate": 4.0}
OWN_SETTINGS = {"bank": ("sigmas",), "channels": (), "depth": ("depth_unit", "nearest", "background")}


Contents = tuple[dict[str, Any], dict[str, np.ndarray]]
"""Description and arrays of a model."""


def _as_latest(version: int, description: dict[str, Any], arrays: dict[str, np.ndarray]) -> Contents:
    """The description and arrays of the same model in the form of the latest version."""
    if version < 2:
        description, arrays = _as_second(description, arrays)
    if version < 3:
        offsets = [name for name in arrays if name.startswith("level") and name.endswith(".offset")]
        arrays = {**arrays, **{name: _with_slices(arrays[name]) for name in offsets}}
    return description, arrays


def _with_slices(offset: np.ndarray) -> np.ndarray:
    """Offsets (N,J,3) with 0 slices from rows and columns (N,J,2); other shapes give a shape that the checks refuse."""
    is_flat = offset.ndim == 3 and offset.shape[2] == 2
    return np.concatenate([np.zeros_like(offset[..., :1]), offset], axis=2) if is_flat else offset[..., :0]


def _as_second(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Contents:
    described, settings = dict(description), dict(description["settings"])
    features = description["features"]
    kind = features["kind"]
    own = {name: features[name] for name in ("kind", "n_inputs", *OWN_SETTINGS[kind])}
    described["features"] = {**own, "proportions": PROPORTIONS} if kind == "bank" else own
    unused = () if kind == "bank" else ("features.input_mean", "features.input_std")
    described["refined"] = [_record(record) for record in settings.pop("refined", [])]
    described["relaxed"] = bool(described["refined"])
    described["settings"] = settings
    if described["kind"] == "net":
        records = [_record(record) for record in described["net"]["refined"]]
        described["net"] = {**described["net"], "refined": records, "relaxed": bool(records), "walked": False}
    return described, {name: array for name, array in arrays.items() if name not in unused}


def _record(record: Mapping[str, Any]) -> dict[str, Any]:
    scores = {name: record["scores"].get(name) for name in ("stack", "mapped", "refined")}
    checks = [
        {"step": entry["step"], "loss": entry.get("loss"), "mean_dice": entry.get("mean_dice")}
        for entry in record["history"]
    ]
    return {"config": record.get("config", {}), "checks": checks, **scores}
