"""The encoder of features, and the same features with changed weights of their encoder."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.joined import Joined
from hedgerow.features.protocol import FeatureSet


def encoder_of(features: FeatureSet) -> EncoderFeatures | None:
    """The features that come from a pretrained network; they are of one kind at most."""
    members = features.members if isinstance(features, Joined) else (features,)
    return next((member for member in members if isinstance(member, EncoderFeatures)), None)


def changed_of(features: FeatureSet) -> Mapping[str, np.ndarray]:
    """The changed weights of the features' encoder, by name."""
    encoder = encoder_of(features)
    return {} if encoder is None else encoder.changed


def with_changed(features: FeatureSet, changed: Mapping[str, np.ndarray]) -> FeatureSet:
    """The same features with these weights in their encoder, which they must have."""
    if isinstance(features, Joined):
        members = (
            with_changed(member, changed) if isinstance(member, EncoderFeatures) else member
            for member in features.members
        )
        return replace(features, members=tuple(members))
    assert isinstance(features, EncoderFeatures)
    return replace(features, changed=dict(changed))
