"""The kinds of models and features that an export supports. Each export has a table of the features it can compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from hedgerow.encoders.catalogue import PUBLISHED
from hedgerow.errors import InputError
from hedgerow.features.bank import Bank
from hedgerow.features.encoder import encoder_of
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import dimensions_of

Entry = TypeVar("Entry")
WITHOUT_FEATURES = "without features (--no-filters, or filters=False in Python) and compute them yourself."


def onnx_encoders() -> list[str]:
    """The encoders that can be exported to ONNX."""
    return [name for name, encoder in PUBLISHED.items() if encoder.onnx_layers]


@dataclass(frozen=True)
class Exported:
    """The files that were written.

    compile: the command that compiles them; None: nothing to compile
    note:    a sentence about their content, or ""
    """

    files: tuple[Path, ...]
    compile: str | None = None
    note: str = ""


def entry_of(features: FeatureSet, table: Mapping[str, Entry], target: str) -> Entry:
    """The entry of a kind of feature in the table of an export; raises InputError if it has none."""
    if isinstance(features, Bank) and features.normalise:
        raise InputError(
            f"features of images that are scaled by their own intensities cannot be computed in {target}; train with "
            f"the setting normalise = false, or export the model {WITHOUT_FEATURES}"
        )
    if features.dimensions == 3:
        raise InputError(
            f"features of volumes in three dimensions cannot be computed in {target}; train with the setting "
            f"dimensions = 2, or export the model {WITHOUT_FEATURES}"
        )
    if features.kind in table:
        return table[features.kind]
    encoder, subject, remedy = encoder_of(features), f"{features.kind!r} features", "export the model"
    if encoder is not None:
        name = encoder.source.encoder
        subject = f"features come from the pretrained network {name[:60]}, which"
        remedy = "train with --features bank, "
        remedy += "export the model to ONNX, or export it" if name in onnx_encoders() else "or export the model"
    raise InputError(f"{subject} cannot be computed in {target}; {remedy} {WITHOUT_FEATURES}")


def is_stretched(features: FeatureSet) -> bool:
    """Whether offsets are stretched at every pixel and read constants outside the image; exports support both or
    neither."""
    is_stretched = features.stretch(np.zeros((features.n_inputs, 1, 1), np.float32)) is not None
    if is_stretched != (features.outside(0) is not None):
        raise InputError(
            f"{features.kind!r} features stretch offsets or read constants outside the image, but not both, which "
            "cannot be exported; run the model in Python."
        )
    return is_stretched


def refuse_volumes(stack: ForestStack) -> None:
    """Raise InputError for a stack that looks at other slices: exported models are for images only."""
    if dimensions_of(stack) == 3:
        raise InputError(
            "exported models are for images, but this one looks at neighbouring slices of a volume; run it in "
            "Python, or train with dimensions = 2."
        )
