"""What an export can do with a kind of feature. Each export has a table of the kinds that it can compute."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from hedgerow.errors import InputError
from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.joined import Joined
from hedgerow.features.protocol import FeatureSet

Entry = TypeVar("Entry")
NETWORKS = ("lite0", "mobilesam")  # the encoders that ONNX can compute


def entry_of(features: FeatureSet, table: Mapping[str, Entry], target: str) -> Entry:
    """What the table of an export has for a kind of feature, or a refusal that names the remedy."""
    if features.kind not in table:
        for encoder in encoders_of(features):
            name = encoder.source.encoder
            raise InputError(
                f"features come from the pretrained network {name[:60]}, which cannot be computed in {target}; "
                f"{'export the model to ONNX, or ' * (name in NETWORKS)}leave the features out, and give the exported "
                "model those that you computed yourself: --no-filters, or filters=False in Python."
            )
        raise InputError(
            f"{features.kind!r} features cannot be computed in {target}; leave them out, and give the exported model "
            "features that you computed yourself: --no-filters, or filters=False in Python."
        )
    return table[features.kind]


def encoders_of(features: FeatureSet) -> list[EncoderFeatures]:
    """The features that are layers of pretrained networks: these, or members of these."""
    members = features.members if isinstance(features, Joined) else (features,)
    return [member for member in members if isinstance(member, EncoderFeatures)]


def is_stretched(features: FeatureSet) -> bool:
    """Whether offsets are stretched at every pixel, and read constants beyond the image; exports know both or none."""
    is_stretched = features.stretch(np.zeros((features.n_inputs, 1, 1), np.float32)) is not None
    if is_stretched != (features.outside(0) is not None):
        raise InputError(
            f"{features.kind!r} features stretch offsets and have values beyond the image in a way that cannot be "
            "exported; run the model in Python."
        )
    return is_stretched
