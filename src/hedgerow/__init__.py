"""Hedgerow: segment images, pixel by pixel, from a handful of labelled examples."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public names and where they live; each module is loaded when a name is first used, so that importing is instant.
_HOMES = {
    "AugmentConfig": "config",
    "ConfigError": "errors",
    "ContextConfig": "config",
    "DivergenceError": "errors",
    "ForestStack": "trees",
    "HedgerowError": "errors",
    "InputError": "errors",
    "ModelError": "errors",
    "NeuralForestClassifier": "tables",
    "RefineConfig": "config",
    "SamplingConfig": "config",
    "Scores": "metrics",
    "Sharpness": "config",
    "StackConfig": "config",
    "StackNet": "convnet",
    "class_table": "images",
    "evaluate": "evaluation",
    "fit_stack": "stack",
    "from_sklearn": "interop",
    "load": "model_io",
    "look": "figures",
    "read_image": "images",
    "read_labels": "images",
    "refine": "refinement",
    "save": "model_io",
    "set_threads": "threads",
    "synthetic": "",
    "to_convnet": "mapping",
    "to_forest": "mapping",
    "to_sklearn": "interop",
    "write_report": "report",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hedgerow' has no attribute {name!r}")
    home = _HOMES[name]
    value = (
        getattr(importlib.import_module(f"hedgerow.{home}"), name)
        if home
        else importlib.import_module(f"hedgerow.{name}")
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
