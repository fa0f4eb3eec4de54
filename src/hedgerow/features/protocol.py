"""`FeatureSet`: what a kind of feature offers to everything that grows, runs, saves or exports a model.

A new kind is one file that subclasses it, and one line in `choices.FEATURES`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, InputError, refuse_unless
from hedgerow.images.array_checks import Layout
from hedgerow.images.regions import Region
from hedgerow.images.stored import MAX_CHANNELS
from hedgerow.kernels.cpu import filters as kernels

MAX_HALO = 3000  # that of the filter bank at the largest scale the settings allow
Arrays = dict[str, np.ndarray]


class FeatureSet(Protocol):
    """Turns an image (C,H,W) into features (F,H,W), each standardised over the training set.

    Implementations are frozen dataclasses. A kind must define `kind`, `names`, `from_images` and `raw`; if it has
    settings or arrays of its own, also `settings`, `arrays`, `from_file` and `validate`. The rest has defaults.

    n_inputs:  C
    mean, std: (F,) float32, of the raw features over the training set
    """

    kind: ClassVar[str]
    layout: ClassVar[Layout] = "picture"
    blank: ClassVar[float | None] = None  # pixel value that means "nothing was seen here", for images with one
    proposals: ClassVar[str] = "offsets"  # what a split may look at: "offsets", or "depth" differences
    max_offset: ClassVar[float] = 2048.0  # in a model file's splits; larger ones would need absurd memory
    offset_unit: ClassVar[str] = ""  # for display: where offsets count in pixels, e.g. " at one metre"

    n_inputs: int
    mean: np.ndarray
    std: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """One name per feature."""
        ...

    @property
    def n_features(self) -> int:
        return len(self.names)

    @property
    def halo(self) -> int:
        """How far, in pixels, a feature looks from its own pixel."""
        return 0

    @classmethod
    def from_images(cls, images: Sequence[np.ndarray], config: StackConfig) -> Self:
        """What the kind learns from training images (C,H,W); mean and std are still 0 and 1."""
        raise ConfigError(f"{cls.kind!r} features are made of others; they cannot be chosen by name.")

    def raw(self, image: np.ndarray) -> np.ndarray:
        """Features (F,H,W) float32 of an image (C,H,W), before they are standardised.

        A pixel's features depend on the image within `halo` alone, so that tiles agree bit for bit; a kind whose
        features also depend on where in the image a pixel is, or that has a faster way, defines `raw_in` instead.
        """
        raise ConfigError(f"{self.kind!r} features define neither `raw` nor `raw_in`.")

    def raw_in(self, image: np.ndarray, region: Region) -> np.ndarray:
        """Features (F,h,w) in a region of an image (C,H,W) before they are standardised, the same bits as for the
        whole."""
        seen = region.grown(self.halo, Region.whole(image.shape[1:]))
        return region.within(seen).of(self.raw(np.ascontiguousarray(seen.of(image))))

    def own_raw(self, image: np.ndarray, region: Region | None = None) -> np.ndarray:
        """`raw_in` a region (default: all), as a contiguous array of its own: it will be standardised in place."""
        raw = np.ascontiguousarray(self.raw_in(image, region or Region.whole(image.shape[1:])), np.float32)
        return raw.copy() if isinstance(image, np.ndarray) and np.may_share_memory(raw, image) else raw

    def check_here(self) -> None:
        """Raise a HedgerowError if anything it computes with is not on this machine."""
        return

    def counted(self, raw: np.ndarray) -> np.ndarray:
        """(F,n): the part of the raw features (F,H,W) that mean and std are computed from."""
        return raw.reshape(len(raw), -1)

    def with_statistics(self, mean: np.ndarray, std: np.ndarray) -> Self:
        """The same features with the statistics (F,) of the training set."""
        return replace(self, mean=mean, std=std)  # type: ignore[type-var]

    def standardise(self, raw: np.ndarray) -> np.ndarray:
        """Standardise raw features (F,...), contiguous, in place."""
        kernels.standardise(raw.reshape(len(raw), -1), self.mean, np.float32(1) / self.std)
        return raw

    def compute(self, image: np.ndarray, region: Region | None = None) -> np.ndarray:
        """Features (F,h,w) float32 in a region (default: all) of an image (C,H,W), the same bits as for the whole."""
        if image.shape[0] != self.n_inputs:
            raise InputError(
                f"the image has {image.shape[0]} channel(s) but the model was trained on {self.n_inputs}; "
                "give images of the same kind."
            )
        return self.standardise(self.own_raw(image, region))

    def stretch(self, image: np.ndarray) -> np.ndarray | None:
        """(H,W) float32 factor for the offsets at each pixel; None: they are the same everywhere."""
        return None

    def reach(self, offset: float) -> int:
        """How far, in pixels, an offset of this length can reach."""
        return int(np.ceil(offset))

    def outside(self, n_proba: int) -> np.ndarray | None:
        """(F + n_proba,) float32 value of each channel outside the image; None: that of the nearest edge pixel."""
        return None

    def settings(self) -> dict[str, Any]:
        """What a model file says about the features, JSON-ready; `arrays` are stored alongside."""
        return {"kind": self.kind, "n_inputs": self.n_inputs}

    def arrays(self) -> Arrays:
        return {"mean": self.mean, "std": self.std}

    @classmethod
    def from_file(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Rebuilt from what `settings` and `arrays` returned; a hostile file may supply both, so `validate` follows."""
        own = {name: value for name, value in settings.items() if name != "kind"}
        return cls(**own, **arrays)

    def validate(self) -> None:
        """Raise ModelError unless settings and statistics are usable and fit each other."""
        check_features(
            type(self.n_inputs) is int
            and 1 <= self.n_inputs <= MAX_CHANNELS
            and self.mean.shape == self.std.shape == (self.n_features,)
            and are_statistics(self.mean, self.std)
            and 0 <= self.halo <= MAX_HALO
        )


def check_features(fits: bool) -> None:
    """Refuse a model file whose feature settings are impossible."""
    refuse_unless(fits, "its feature settings are inconsistent")


def are_statistics(mean: np.ndarray, std: np.ndarray) -> bool:
    """Whether these could be means and standard deviations, such that standardising does not overflow.

    `statistics` gives no deviation below 1e-15, and few above a mean's 1e-5.
    """
    with np.errstate(over="ignore"):
        return bool((std >= 1e-16).all() and (std <= 1e30).all() and (np.abs(mean) / std <= 1e30).all())


def unfitted(n_features: int) -> Arrays:
    """The mean and std (F,) that leave features as they are."""
    return {"mean": np.zeros(n_features, np.float32), "std": np.ones(n_features, np.float32)}


class Statistics:
    """Mean and standard deviation of rows that arrive in parts."""

    def __init__(self) -> None:
        self._count, self._total, self._square = 0, np.zeros(1), np.zeros(1)

    def add(self, part: np.ndarray) -> None:
        """part: (n, pixels)"""
        self._count += part.shape[1]
        self._total = self._total + part.sum(axis=1, dtype=np.float64)
        # Not `dot`: the library behind it has threads of its own, and sums in an order that depends on their number.
        squares = [np.einsum("i,i", wide, wide) for wide in (row.astype(np.float64) for row in part)]
        self._square = self._square + np.array(squares)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """(n,) float32 each; the deviation of a constant row is 1."""
        n = max(self._count, 1)
        mean, square = self._total / n, self._square / n
        variance = square - mean**2
        # For a constant row, rounding of the two sums leaves up to this much.
        is_flat = variance <= 1e-10 * square + 1e-30
        return mean.astype(np.float32), np.where(is_flat, 1.0, np.sqrt(np.maximum(variance, 0))).astype(np.float32)


TILE_SIDE = 512
MAX_TILES = 1024
"""Statistics are summed over tiles of TILE_SIDE pixels in a grid from each image's corner, over MAX_TILES at most,
evenly chosen: the same sums in the same order for an image in memory and for one that is read in parts."""


def sampled_tiles(sizes: Sequence[tuple[int, int]]) -> list[list[Region]]:
    """For each image of a training set, by their sizes (H,W), the tiles from which statistics are computed."""
    tiles = [Region.whole(size).tiles(TILE_SIDE) for size in sizes]
    step = -(-sum(map(len, tiles)) // MAX_TILES)
    sampled, first = [], 0
    for own in tiles:
        sampled.append(own[first::step])
        first += len(sampled[-1]) * step - len(own)
    return sampled


def image_statistics(images: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (C,) float32 of the channels of images (C,H,W), in memory or not."""
    tiles = sampled_tiles([(image.shape[1], image.shape[2]) for image in images])
    return statistics(
        np.ascontiguousarray(tile.of(image)).reshape(image.shape[0], -1)
        for image, some in zip(images, tiles, strict=True)
        for tile in some
    )


def statistics(parts: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (n,) float32 over the second axis of (n, pixels) parts."""
    total = Statistics()
    for part in parts:
        total.add(part)
    return total.result()
