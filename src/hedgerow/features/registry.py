"""The kinds of feature by name, and how a model gets its own: from training images or from a file."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Self

import numpy as np

from hedgerow.choices import FEATURES, known_features
from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.joined import Joined, can_be_joined, joined, joint_layout
from hedgerow.features.protocol import TILE_SIDE, Arrays, FeatureSet, Statistics, check_features, sampled_tiles
from hedgerow.images.array_checks import Layout, as_volumes
from hedgerow.images.regions import Region

Places = tuple[np.ndarray, np.ndarray]
"""Rows and columns (n,) of pixels."""

MAX_BYTES_IN_MEMORY = 2**26  # enough for a small set; the rest is written to a file and read again quickly
FEATURE_KINDS: dict[str, type[FeatureSet]] = {name: choice.load() for name, choice in FEATURES.items()}
MAX_MEMBERS = 16


def register(kind: type[FeatureSet]) -> type[FeatureSet]:
    """Register a kind defined elsewhere; also usable as a class decorator."""
    if kind.kind in (*FEATURE_KINDS, Joined.kind):
        raise ConfigError(f"there are already {kind.kind!r} features; give the new kind another name.")
    FEATURE_KINDS[kind.kind] = kind
    known_features[kind.kind] = None
    return kind


def kinds_of(features: str | Sequence[str]) -> list[type[FeatureSet]]:
    """The kinds that `StackConfig.features` names, which is checked there."""
    return [FEATURE_KINDS[name] for name in ([features] if isinstance(features, str) else features)]


def layout_of(features: str | Sequence[str]) -> Layout:
    """How images are passed in for these features."""
    return joint_layout(kinds_of(features))


def features_from_images(
    images: Sequence[np.ndarray], config: StackConfig, anisotropy: float | None = None
) -> FeatureSet:
    """The feature set for training images, each (C,H,W) float32, or volumes (C,Z,H,W); it does not have its statistics
    yet.

    anisotropy: pixels between slices, for features of volumes in three dimensions; None: in the plane
    """
    members = [kind.from_images(images, config) for kind in kinds_of(config.features)]
    if anisotropy is not None:
        members = [member.for_volumes(anisotropy) for member in members]
    return members[0] if len(members) == 1 else joined(members)


class FeatureStore(Sequence[np.ndarray]):
    """The features (F,H,W) float32 of one image after another: appended raw, and returned standardised."""

    def __init__(self, memory: int = MAX_BYTES_IN_MEMORY) -> None:
        """memory: bytes that stay in memory; the rest goes to a file that is deleted with this object"""
        self._room = memory
        self._kept: list[np.ndarray | tuple[int, tuple[int, ...]]] = []  # an array, or its place in the file and shape
        self._file: IO[bytes] | None = None
        self._features: FeatureSet | None = None

    def append(self, raw: np.ndarray) -> None:
        if raw.nbytes <= self._room:
            self._room -= raw.nbytes
            self._kept.append(raw)
            return
        try:
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 (closed with this object)
            self._kept.append((self._file.seek(0, os.SEEK_END), raw.shape))
            self._file.write(np.ascontiguousarray(raw).data)
        except OSError as problem:
            raise InputError(
                f"the features of the training images fit neither in memory nor in {tempfile.gettempdir()} "
                f"({problem.strerror}); give fewer or smaller images, or set TMPDIR to a larger disk."
            ) from problem

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def finished(self, features: FeatureSet, statistics: Statistics) -> tuple[FeatureSet, Self]:
        """The features with these statistics, and the store, which from now on standardises with them."""
        self._features = features.with_statistics(*statistics.result())
        for stored in self._kept:
            if isinstance(stored, np.ndarray):
                self._features.standardise(stored)
        return self._features, self

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, i: int) -> np.ndarray:  # type: ignore[override]  # one at a time
        stored = self._kept[i]
        if isinstance(stored, np.ndarray):
            return stored
        assert self._file is not None
        assert self._features is not None
        place, shape = stored
        self._file.seek(place)
        raw = np.fromfile(self._file, np.float32, int(np.prod(shape))).reshape(shape)
        return self._features.standardise(raw)


def fit_features(
    images: Sequence[np.ndarray],
    config: StackConfig,
    advance: Callable[[int], None] = lambda n_done: None,
    anisotropy: float | None = None,
) -> tuple[FeatureSet, FeatureStore]:
    """The feature set for training images, each (C,H,W) float32, or volumes (C,Z,H,W), and the features (F,H,W) or
    (F,Z,H,W) of each of them.

    advance:    receives the number of images that are done
    anisotropy: as of `features_from_images`
    """
    features = features_from_images(images, config, anisotropy)
    store, statistics = FeatureStore(), Statistics()
    for n_done, (image, counted) in enumerate(zip(images, _counted_tiles(images), strict=True), start=1):
        raw = features.own_raw(image)
        for tile in counted:
            statistics.add(features.counted(np.ascontiguousarray(tile.of_volume(as_volumes(raw)))))
        store.append(raw)
        advance(n_done)
    return store.finished(features, statistics)


def fit_features_at(
    images: Sequence[np.ndarray], places: Sequence[Places], config: StackConfig
) -> tuple[FeatureSet, FeatureStore]:
    """The same feature set as `fit_features` returns, and the features (F,1,n) of each image at its places alone.

    images: (C,H,W) each, in memory or not; parts of them are read, and each image is requested at most twice
    """
    features = features_from_images(images, config)
    store, statistics = FeatureStore(), Statistics()
    for image, counted, (rows, columns) in zip(images, _counted_tiles(images), places, strict=True):
        at_places = np.empty((features.n_features, 1, len(rows)), np.float32)
        for tile, mine in _places_by_tile((image.shape[1], image.shape[2]), rows, columns, set(counted)):
            region = tile
            if tile not in counted:  # then only the box around the places is needed
                region = Region.of_pixels(rows[mine], columns[mine])
            raw = features.own_raw(image, region)
            if tile in counted:
                statistics.add(features.counted(raw))
            at_places[:, 0, mine] = raw[:, rows[mine] - region.top, columns[mine] - region.left]
        store.append(at_places)
    return store.finished(features, statistics)


def _counted_tiles(images: Sequence[np.ndarray]) -> list[list[Region]]:
    """For each image, the tiles from which statistics are computed."""
    return sampled_tiles([image.shape[1:] for image in images])


def _places_by_tile(
    size: tuple[int, int], rows: np.ndarray, columns: np.ndarray, counted: set[Region]
) -> Iterator[tuple[Region, np.ndarray]]:
    """The tiles of an image that hold places or are counted, row after row, each with the numbers of its places."""
    n_across = -(-size[1] // TILE_SIDE)
    key = (rows // TILE_SIDE).astype(np.int64) * n_across + columns // TILE_SIDE
    order = np.argsort(key, kind="stable")
    tiles = Region.whole(size).tiles(TILE_SIDE)
    own = {(tile.top // TILE_SIDE) * n_across + tile.left // TILE_SIDE for tile in counted}
    for k in sorted(own.union(np.unique(key).tolist())):
        first, last = np.searchsorted(key, (k, k + 1), sorter=order)
        yield tiles[k], order[first:last]


def rebuild(settings: Mapping[str, Any], arrays: Arrays) -> FeatureSet:
    """The features of a model file, checked; arrays are float32."""
    kind = settings["kind"]
    if kind == Joined.kind:
        features: FeatureSet = _rebuild_joined(settings, arrays)
    elif kind in FEATURE_KINDS:
        features = FEATURE_KINDS[kind].from_file(settings, arrays)
    else:
        raise ConfigError(
            f"its features are of the unknown kind {str(kind)[:40]!r}; import the package that defines it."
        )
    features.validate()
    # These features would not have written anything else that the file holds.
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
