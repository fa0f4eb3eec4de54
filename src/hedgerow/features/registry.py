"""The kinds of feature by name, and how a model gets its own: from training images, or from a file."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow.choices import FEATURES, known_features
from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, shown
from hedgerow.features.feature_store import FeatureStore
from hedgerow.features.joined import Joined, can_be_joined, joined, joint_layout
from hedgerow.features.protocol import Arrays, FeatureSet, Statistics, check_features, sampled_tiles
from hedgerow.images.array_checks import Layout

KINDS: dict[str, type[FeatureSet]] = {name: choice.load() for name, choice in FEATURES.items()}
MAX_MEMBERS = 16


def register(kind: type[FeatureSet]) -> type[FeatureSet]:
    """Register a kind defined elsewhere; also usable as a class decorator."""
    if kind.kind in (*KINDS, Joined.kind):
        raise ConfigError(f"there are already {kind.kind!r} features; give the new kind another name.")
    KINDS[kind.kind] = kind
    known_features[kind.kind] = None
    return kind


def kinds_of(features: str | Sequence[str]) -> list[type[FeatureSet]]:
    """The kinds that `StackConfig.features` names."""
    names = [features] if isinstance(features, str) else list(features)
    for name in names:
        if name not in KINDS:
            raise ConfigError(
                f"StackConfig.features is {shown(name)}; it must be one of {', '.join(KINDS)}, or several."
            )
    return [KINDS[name] for name in names]


def layout_of(features: str | Sequence[str]) -> Layout:
    """How images are passed in for these features."""
    return joint_layout(kinds_of(features))


def features_from_images(images: Sequence[np.ndarray], config: StackConfig) -> FeatureSet:
    """The feature set for training images, each (C,H,W) float32, before its statistics."""
    members = [kind.from_images(images, config) for kind in kinds_of(config.features)]
    return members[0] if len(members) == 1 else joined(members)


def fit_features(images: Sequence[np.ndarray], config: StackConfig) -> tuple[FeatureSet, FeatureStore]:
    """The feature set for training images, each (C,H,W) float32, and what it computes for each of them."""
    features = features_from_images(images, config)
    store, statistics = FeatureStore(), Statistics()
    tiles = sampled_tiles([(image.shape[1], image.shape[2]) for image in images])
    for image, some in zip(images, tiles, strict=True):
        raw = features.own_raw(image)
        for tile in some:
            statistics.add(features.counted(np.ascontiguousarray(tile.of(raw))))
        store.append(raw)
    features = features.with_statistics(*statistics.result())
    store.finish(features)
    return features, store


def rebuild(settings: Mapping[str, Any], arrays: Arrays) -> FeatureSet:
    """The features of a model file, checked; arrays are float32."""
    kind = settings["kind"]
    if kind == Joined.kind:
        features: FeatureSet = _rebuild_joined(settings, arrays)
    elif kind in KINDS:
        features = KINDS[kind].from_file(settings, arrays)
    else:
        raise ConfigError(
            f"its features are of kind {str(kind)[:40]!r}, which is unknown here; import the package that defines it."
        )
    features.validate()
    # Whatever else a file holds was not written by these features.
    check_features(features.settings() == dict(settings) and features.arrays().keys() == arrays.keys())
    return features


def _rebuild_joined(settings: Mapping[str, Any], arrays: Arrays) -> Joined:
    descriptions = settings["members"]
    check_features(isinstance(descriptions, list) and 2 <= len(descriptions) <= MAX_MEMBERS)
    members = []
    for k, member in enumerate(descriptions):
        check_features(member["kind"] != Joined.kind)
        own = {name.removeprefix(f"{k}."): array for name, array in arrays.items() if name.startswith(f"{k}.")}
        members.append(rebuild(member, own))
    check_features(all(map(can_be_joined, members)) and len({member.kind for member in members}) == len(members))
    check_features({member.n_inputs for member in members} == {settings["n_inputs"]})
    return Joined(settings["n_inputs"], tuple(members), arrays["mean"], arrays["std"])
