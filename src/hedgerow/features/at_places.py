"""Features of training images at some of their pixels: images may be larger than memory, and are read in parts."""

from collections.abc import Iterator, Sequence

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.features.feature_store import FeatureStore
from hedgerow.features.protocol import TILE_SIDE, FeatureSet, Statistics, sampled_tiles
from hedgerow.features.registry import features_from_images
from hedgerow.images.regions import Region

Places = tuple[np.ndarray, np.ndarray]
"""Rows and columns (n,) of pixels."""


def fit_features_at(
    images: Sequence[np.ndarray], places: Sequence[Places], config: StackConfig
) -> tuple[FeatureSet, FeatureStore]:
    """The feature set for training images (C,H,W), the same as of `fit_features`; and what it computes for each of them
    at its places, (F,1,n).

    images: anything with a shape of which parts can be read; each is asked for once or twice, and let go
    """
    features = features_from_images(images, config)
    tiles = sampled_tiles([(image.shape[1], image.shape[2]) for image in images])
    store, statistics = FeatureStore(), Statistics()
    for image, some, (rows, columns) in zip(images, tiles, places, strict=True):
        at_places = np.empty((features.n_features, 1, len(rows)), np.float32)
        for tile, mine in _by_tile((image.shape[1], image.shape[2]), rows, columns, set(some)):
            region = tile if tile in some else _box(rows[mine], columns[mine])
            raw = features.own_raw(image, region)
            if tile in some:
                statistics.add(features.counted(raw))
            at_places[:, 0, mine] = raw[:, rows[mine] - region.top, columns[mine] - region.left]
        store.append(at_places)
    features = features.with_statistics(*statistics.result())
    store.finish(features)
    return features, store


def _by_tile(
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


def _box(rows: np.ndarray, columns: np.ndarray) -> Region:
    return Region(int(rows.min()), int(rows.max()) + 1, int(columns.min()), int(columns.max()) + 1)
