"""Features whose encoder has changed weights: which features have an encoder, and the same with other weights."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.joined import Joined
from hedgerow.features.protocol import FeatureSet


def encoder_of(features: FeatureSet) -> EncoderFeatures | None:
    """Those of the features that come from a pretrained network, which are one kind at most."""
    members = features.members if isinstance(features, Joined) else (features,)
    return next((member for member in members if isinstance(member, EncoderFeatures)), None)


def changed_of(features: FeatureSet) -> Mapping[str, np.ndarray]:
    """The changed weights of their encoder, by name; none if there are none."""
    encoder = encoder_of(features)
    return {} if encoder is None else encoder.changed


def with_changed(features: FeatureSet, changed: Mapping[str, np.ndarray]) -> FeatureSet:
    """The same features, computed with these weights of their encoder, which they must have."""
    if isinstance(features, Joined):
        members = (
            with_changed(member, changed) if isinstance(member, EncoderFeatures) else member
            for member in features.members
        )
        return replace(features, members=tuple(members))
    assert isinstance(features, EncoderFeatures)
    return replace(features, changed=dict(changed))
