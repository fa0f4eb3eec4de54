"""Conversion of model files of older format versions to the latest.

Hedgerow 0.1.0 wrote version 1. Up to version 2, offsets have no slices, because all models were for images.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

# Constants of the program in version 1, and part of the file since version 2.
PROPORTIONS = {"dog_ratio": 0.66, "structure_ratio": 0.5, "truncate": 4.0}
OWN_SETTINGS = {"bank": ("sigmas",), "channels": (), "depth": ("depth_unit", "nearest", "background")}


Contents = tuple[dict[str, Any], dict[str, np.ndarray]]
"""Description and arrays of a model."""


def as_latest(version: int, description: dict[str, Any], arrays: dict[str, np.ndarray]) -> Contents:
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
