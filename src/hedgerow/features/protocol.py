"""`FeatureSet`: the interface of a kind of feature, for all code that grows, runs, saves or exports a model.

A new kind is one file with a subclass, and one line in `choices.FEATURES`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, refuse_unless
from hedgerow.images.array_checks import Layout, check_channels
from hedgerow.images.regions import Region
from hedgerow.images.stored import MAX_CHANNELS
from hedgerow.kernels.cpu import filters as kernels

MAX_HALO = 3000  # the halo of the filter bank at the largest scale that the settings allow
Arrays = dict[str, np.ndarray]


class FeatureSet(Protocol):
    """Turns an image (C,H,W) into features (F,H,W), each standardised over the training set; a volume (C,Z,H,W) into
    (F,Z,H,W).

    Subclasses are frozen dataclasses. A kind must define `kind`, `names`, `from_images` and `raw`; if it has settings
    or arrays of its own, also `settings`, `arrays`, `from_file` and `validate`. Everything else has defaults. A kind
    whose features look into other slices of a volume also defines `for_volumes`, `dimensions`, `halo_z` and
    `raw_in_volume`.

    n_inputs:  C
    mean, std: (F,) float32, of the raw features over the training set
    """

    kind: ClassVar[str]
    layout: ClassVar[Layout] = "picture"
    blank: ClassVar[float | None] = None  # the pixel value that means "nothing was seen here", if there is one
    proposals: ClassVar[str] = "offsets"  # the kind of splits: "offsets", or "depth" differences
    max_offset: ClassVar[float] = 2048.0  # in a model file; larger offsets would need absurd memory
    offset_unit: ClassVar[str] = ""  # for display: where an offset is a number of pixels, e.g. " at one metre"

    n_inputs: int
    mean: np.ndarray
    std: np.ndarray

    @property
    def title(self) -> str:
        """As `train --features` takes it, e.g. bank+encoder:lite0."""
        return self.kind

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

    @property
    def halo_z(self) -> int:
        """How far, in slices of a volume, a feature looks from its own slice."""
        return 0

    @property
    def dimensions(self) -> int:
        """3 if a feature looks into other slices of a volume, else 2."""
        return 2

    @classmethod
    def from_images(cls, images: Sequence[np.ndarray], config: StackConfig) -> Self:
        """The features with all that they learn from training images (C,H,W) or volumes (C,Z,H,W), except that mean and
        std are 0 and 1."""
        raise ConfigError(f"{cls.kind!r} features consist of others; they cannot be chosen by name.")

    def for_volumes(self, anisotropy: float) -> Self:
        """The same features in three dimensions, where slices are `anisotropy` pixels apart; by default unchanged,
        slice by slice. It is called after `from_images`, before the statistics are known."""
        return self

    def raw(self, image: np.ndarray) -> np.ndarray:
        """Features (F,H,W) float32 of an image (C,H,W), before they are standardised.

        A pixel's features may depend on the image within `halo` only, so that tiles agree bit for bit. A kind whose
        features also depend on a pixel's position, or that can compute a region faster, defines `raw_in` instead.
        """
        raise ConfigError(f"{self.kind!r} features define neither `raw` nor `raw_in`.")

    def raw_in(self, image: np.ndarray, region: Region) -> np.ndarray:
        """Features (F,h,w) in a region of an image (C,H,W) before they are standardised: the same bits as in the whole
        image."""
        seen = region.grown(self.halo, Region.whole(image.shape[1:]))
        return region.within(seen).of(self.raw(np.ascontiguousarray(seen.of(image))))

    def raw_in_volume(self, volume: np.ndarray, region: Region) -> np.ndarray:
        """Features (F,d,h,w) in a region of a volume (C,Z,H,W) before they are standardised: the same bits as in the
        whole volume. By default slice by slice."""
        plane = replace(region, front=0, back=1)
        return np.stack([self.raw_in(volume[:, z], plane) for z in range(region.front, region.back)], axis=1)

    def own_raw(self, image: np.ndarray, region: Region | None = None) -> np.ndarray:
        """`raw_in` or `raw_in_volume` of a region (default: all) as a contiguous array of its own, which can be
        standardised in place."""
        computed = self.raw_in_volume if image.ndim == 4 else self.raw_in
        raw = np.ascontiguousarray(computed(image, region or Region.whole(image.shape[1:])), np.float32)
        return raw.copy() if isinstance(image, np.ndarray) and np.may_share_memory(raw, image) else raw

    def check_here(self) -> None:
        """Raise a HedgerowError if something that the features need is missing on this machine."""
        return

    def counted(self, raw: np.ndarray) -> np.ndarray:
        """(F,n): the raw features, out of (F,H,W), from which mean and std are computed."""
        return raw.reshape(len(raw), -1)

    def with_statistics(self, mean: np.ndarray, std: np.ndarray) -> Self:
        """The same features with the statistics (F,) of the training set."""
        return replace(self, mean=mean, std=std)  # type: ignore[type-var]

    def standardise(self, raw: np.ndarray) -> np.ndarray:
        """Standardise raw features (F,...), contiguous, in place."""
        kernels.standardise(raw.reshape(len(raw), -1), self.mean, np.float32(1) / self.std)
        return raw

    def compute(self, image: np.ndarray, region: Region | None = None) -> np.ndarray:
        """Features (F,h,w) float32 in a region (default: all) of an image (C,H,W), or (F,d,h,w) of a volume
        (C,Z,H,W): the same bits as in the whole."""
        check_channels(image.shape[0], self.n_inputs, "the image")
        return self.standardise(self.own_raw(image, region))

    def stretch(self, image: np.ndarray) -> np.ndarray | None:
        """(H,W) float32 factor for the offsets at each pixel; None: they are the same everywhere."""
        return None

    def reach(self, offset: float) -> int:
        """How far, in pixels, an offset of this length reaches at most."""
        return int(np.ceil(offset))

    def outside(self, n_proba: int) -> np.ndarray | None:
        """(F + n_proba,) float32 value of each channel outside the image; None: the value of the nearest edge pixel."""
        return None

    def settings(self) -> dict[str, Any]:
        """The description of the features in a model file, ready for JSON; `arrays` are stored with it."""
        return {"kind": self.kind, "n_inputs": self.n_inputs}

    def arrays(self) -> Arrays:
        return {"mean": self.mean, "std": self.std}

    @classmethod
    def from_file(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """The features from what `settings` and `arrays` returned. A hostile file may supply both: `validate` comes
        next."""
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
            and 0 <= self.halo_z <= MAX_HALO
        )


def slices_of(images: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Images (C,H,W) as they are; of volumes (C,Z,H,W), all slices."""
    return images if images[0].ndim == 3 else [volume[:, z] for volume in images for z in range(volume.shape[1])]


def check_features(fits: bool) -> None:
    """Refuse a model file whose feature settings are impossible."""
    refuse_unless(fits, "its feature settings are inconsistent")


def are_statistics(mean: np.ndarray, std: np.ndarray) -> bool:
    """Whether these can be means and standard deviations, and standardising with them does not overflow.

    `Statistics` gives no deviation below 1e-15, and hardly any below 1e-5 of the mean.
    """
    with np.errstate(over="ignore"):
        return bool((std >= 1e-16).all() and (std <= 1e30).all() and (np.abs(mean) / std <= 1e30).all())


def unfitted(n_features: int) -> Arrays:
    """The mean and std (F,) that leave features unchanged."""
    return {"mean": np.zeros(n_features, np.float32), "std": np.ones(n_features, np.float32)}


class Statistics:
    """Mean and standard deviation of rows that arrive in parts."""

    def __init__(self) -> None:
        self._count, self._total, self._square = 0, np.zeros(1), np.zeros(1)

    def add(self, part: np.ndarray) -> None:
        """part: (n, pixels)"""
        self._count += part.shape[1]
        self._total = self._total + part.sum(axis=1, dtype=np.float64)
        # Not `dot`: the library behind it sums in an order that depends on the number of its own threads.
        squares = [np.einsum("i,i", wide, wide) for wide in (row.astype(np.float64) for row in part)]
        self._square = self._square + np.array(squares)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """(n,) float32 each; the deviation of a constant row is 1."""
        n = max(self._count, 1)
        mean, square = self._total / n, self._square / n
        variance = square - mean**2
        # For a constant row, rounding of the two sums leaves at most this.
        is_flat = variance <= 1e-10 * square + 1e-30
        return mean.astype(np.float32), np.where(is_flat, 1.0, np.sqrt(np.maximum(variance, 0))).astype(np.float32)


TILE_SIDE = 512
MAX_SUM_TILES = 1024
"""Statistics are summed over at most MAX_SUM_TILES tiles, evenly chosen from a grid of TILE_SIDE pixels that starts at
each image's corner: the same sums in the same order for an image in memory and for one that is read in parts."""


def sampled_tiles(sizes: Sequence[tuple[int, ...]], most: int | None = None) -> list[list[Region]]:
    """For each image of a training set, given by its size (H,W) or (Z,H,W), the tiles from which statistics are
    computed: at most this many, by default MAX_SUM_TILES."""
    tiles = [Region.whole(size).tiles(TILE_SIDE) for size in sizes]
    step = -(-sum(map(len, tiles)) // (most or MAX_SUM_TILES))
    sampled, first = [], 0
    for own in tiles:
        sampled.append(own[first::step])
        first += len(sampled[-1]) * step - len(own)
    return sampled


def image_statistics(images: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (C,) float32 of the channels of images (C,H,W), in memory or not, or volumes
    (C,Z,H,W)."""
    tiles = sampled_tiles([image.shape[1:] for image in images])
    statistics = Statistics()
    for image, sampled in zip(images, tiles, strict=True):
        for tile in sampled:
            part = tile.of_volume(image) if image.ndim == 4 else tile.of(image)
            statistics.add(np.ascontiguousarray(part).reshape(image.shape[0], -1))
    return statistics.result()
