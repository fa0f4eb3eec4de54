"""Conversion of model files from format version 1, written by Hedgerow 0.1.0, to version 2."""

from collections.abc import Mapping
from typing import Any

import numpy as np

# Constants of the program then; part of the file since.
PROPORTIONS = {"dog_ratio": 0.66, "structure_ratio": 0.5, "truncate": 4.0}
OWN_SETTINGS = {"bank": ("sigmas",), "channels": (), "depth": ("depth_unit", "nearest", "background")}


def as_second(
    description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description and arrays of the same model in the form of version 2."""
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
