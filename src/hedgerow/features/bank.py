"""The filter bank: for each image channel, its raw intensity and eight filters at every scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.config import MAX_SIGMAS, StackConfig
from hedgerow.features.protocol import (
    Arrays,
    FeatureSet,
    are_statistics,
    check_features,
    image_statistics,
    sampled_tiles,
    unfitted,
)
from hedgerow.images.reading import SourcePlanes
from hedgerow.images.regions import Region
from hedgerow.kernels.buffers import empty
from hedgerow.kernels.cpu import filters as kernels
from hedgerow.kernels.definition.gaussian import gaussian_weights
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.settings import limits_of
from hedgerow.threads import map_threads

FILTERS = (
    "gaussian",
    "laplacian",
    "gradient",
    "dog",
    "structure_high",
    "structure_low",
    "hessian_high",
    "hessian_low",
)
"""Filters at each scale. `dog` is a narrower Gaussian minus the Gaussian; the structure tensor is smoothed again."""

OPPONENTS = ("brightness", "red-green", "blue-yellow")
"""The channels that the filters read if the bank is `opponent`."""
LOW, HIGH = 0.01, 0.998
"""Quantiles of an image's pixels that `normalise` maps to 0 and 1: dust and hot pixels lie outside."""
RANGE_TILES = 64  # of an image, from which these quantiles are taken; about 2**18 pixels in all
_ranges = WeakCache()


@dataclass(frozen=True)
class Proportions:
    """Constants of the filters, stored with the model so that new defaults do not change it.

    dog_ratio:       sigma of the narrower Gaussian of `dog`, relative to sigma
    structure_ratio: sigma that smooths the structure tensor, relative to sigma
    truncate:        the distance at which a Gaussian is cut off, in sigmas
    """

    dog_ratio: float = 0.66
    structure_ratio: float = 0.5
    truncate: float = 4.0

    def weights(self, sigma: float) -> np.ndarray:
        """(3, 1+R) float32: the Gaussian and its two derivatives."""
        return gaussian_weights(sigma, self.truncate)


def scale_channels(plane: np.ndarray, sigma: float, proportions: Proportions, out: np.ndarray) -> None:
    """Fill `out` (8,H,W) with FILTERS of one image channel (H,W) at one scale. Borders mirror, edge pixel included."""
    weights = proportions.weights(sigma)
    tensor = empty((3, *plane.shape))
    kernels.derivatives(_padded(plane, weights), weights, out, tensor)
    narrow = proportions.weights(proportions.dog_ratio * sigma)
    kernels.smooth(_padded(plane, narrow), narrow, out[3])
    out[3] -= out[0]
    outer = proportions.weights(proportions.structure_ratio * sigma)
    for product in tensor:
        kernels.smooth(_padded(product, outer), outer, product)
    kernels.symmetric_eigenvalues(tensor[0], tensor[1], tensor[2], out[4], out[5])


def _padded(plane: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Flat ((H+2R)*(W+2R),): the result of np.pad in mode "symmetric", in memory that is reused."""
    radius, (height, width) = weights.shape[1] - 1, plane.shape
    rows, columns = (np.pad(np.arange(n), radius, mode="symmetric") for n in plane.shape)
    padded = empty((height + 2 * radius, width + 2 * radius))
    inner = padded[radius : radius + height]
    inner[:, radius : radius + width] = plane
    inner[:, :radius] = plane[:, columns[:radius]]
    inner[:, radius + width :] = plane[:, columns[radius + width :]]
    padded[:radius] = inner[rows[:radius]]
    padded[radius + height :] = inner[rows[radius + height :]]
    return padded.ravel()


def intensity_range(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(C,) float32 each: the quantile LOW of an image (C,H,W), in memory or not, and the distance from it to HIGH.

    Quantiles are values of pixels, never between two, so that no rounding depends on how the image is read.
    """
    if isinstance(image, SourcePlanes):  # every part of a file is a new object
        return _ranges.get(image.source, "range", lambda: _intensity_range(image))
    return _intensity_range(image)


def _intensity_range(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    (tiles,) = sampled_tiles([(image.shape[1], image.shape[2])], RANGE_TILES)
    step = int(np.ceil(np.sqrt(len(tiles))))
    sampled = [tile.of(image)[:, ::step, ::step].reshape(image.shape[0], -1) for tile in tiles]
    ordered = np.sort(np.concatenate(sampled, axis=1), axis=1)
    last = ordered.shape[1] - 1
    low, high = (ordered[:, int(part * last)] for part in (LOW, HIGH))
    # An image that is nearly all background has no such range, and a constant one none at all.
    high = np.where(high > low, high, ordered[:, -1])
    return low, np.where(high > low, high - low, np.float32(1))


@dataclass(frozen=True)
class Bank(FeatureSet):
    """input_mean, input_std: (C,) float32 statistics of the image channels, removed before filtering
    normalise: each image is scaled by its own `intensity_range` instead
    opponent:  the filters read OPPONENTS instead of the three channels
    """

    kind: ClassVar[str] = "bank"

    n_inputs: int
    sigmas: tuple[float, ...]
    proportions: Proportions
    input_mean: np.ndarray
    input_std: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    normalise: bool = False
    opponent: bool = False

    @classmethod
    def from_images(cls, images: Sequence[np.ndarray], config: StackConfig) -> Self:
        n_inputs = len(images[0])
        zero, unit = unfitted(n_inputs).values() if config.normalise else image_statistics(images)
        is_opponent = config.opponent and n_inputs == len(OPPONENTS)
        if is_opponent and not config.normalise:  # grey stays grey
            unit = np.full_like(unit, unit.mean())
        mean, std = unfitted(n_inputs * _per_input(config.sigmas)).values()
        return cls(n_inputs, config.sigmas, Proportions(), zero, unit, mean, std, config.normalise, is_opponent)

    @property
    def names(self) -> tuple[str, ...]:
        names = []
        for c in range(self.n_inputs):
            prefix = f"{OPPONENTS[c]} " if self.opponent else f"c{c} " if self.n_inputs > 1 else ""
            names.append(f"{prefix}raw")
            names += [f"{prefix}{kind} {sigma:g}" for sigma in self.sigmas for kind in FILTERS]
        return tuple(names)

    @property
    def n_features(self) -> int:
        return self.n_inputs * _per_input(self.sigmas)

    @property
    def halo(self) -> int:
        return max(self._halo_of(sigma) for sigma in self.sigmas)

    def _halo_of(self, sigma: float) -> int:
        """How far the filters of a scale look, which is where `gaussian_weights` cuts them off."""
        cut, ratio = self.proportions.truncate, self.proportions.structure_ratio
        return int(cut * sigma + 0.5) + int(cut * (ratio * sigma) + 0.5)

    def raw_in(self, image: np.ndarray, region: Region) -> np.ndarray:
        """Channels and scales are divided among threads; each scale is computed only with the surroundings it needs."""
        whole = Region.whole(image.shape[1:])
        seen = region.grown(self.halo, whole)
        # Centring first keeps precision where a 16-bit image has a large offset and little contrast.
        zero, unit = intensity_range(image) if self.normalise else (self.input_mean, self.input_std)
        centred = (seen.of(image) - zero[:, None, None]) / unit[:, None, None]
        if self.opponent:
            centred = opponents(centred)
        per_input = _per_input(self.sigmas)
        features = empty((self.n_features, region.height, region.width))
        features[::per_input] = region.within(seen).of(centred)

        def fill(job: tuple[int, int]) -> None:
            c, s = job
            first = c * per_input + 1 + s * len(FILTERS)
            own = features[first : first + len(FILTERS)]
            part = region.grown(self._halo_of(self.sigmas[s]), whole)
            channels = own if part == region else empty((len(FILTERS), part.height, part.width))
            scale_channels(part.within(seen).of(centred[c]), self.sigmas[s], self.proportions, channels)
            if channels is not own:
                own[...] = region.within(part).of(channels)

        coarse_first = sorted(range(len(self.sigmas)), key=lambda s: -self.sigmas[s])
        list(map_threads(fill, [(c, s) for s in coarse_first for c in range(self.n_inputs)]))
        return features

    def settings(self) -> dict[str, Any]:
        own = {"sigmas": list(self.sigmas), "proportions": vars(self.proportions).copy()}
        # Files of banks without these options are those of versions that did not have them.
        options = {name: True for name in ("normalise", "opponent") if getattr(self, name)}
        return {**super().settings(), **own, **options}

    def arrays(self) -> Arrays:
        return {**super().arrays(), "input_mean": self.input_mean, "input_std": self.input_std}

    @classmethod
    def from_file(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        proportions = settings["proportions"]
        check_features(set(proportions) == set(vars(Proportions())))  # a file leaves nothing to a default
        own = {"sigmas": tuple(settings["sigmas"]), "proportions": Proportions(**proportions)}
        return super().from_file({**settings, **own}, arrays)

    def validate(self) -> None:
        numbers = (*self.sigmas, *vars(self.proportions).values())
        low, high = limits_of(StackConfig, "sigmas")  # which bound the memory of a filter
        check_features(
            1 <= len(self.sigmas) <= MAX_SIGMAS
            and all(type(number) in (int, float) for number in numbers)
            and all(low <= sigma <= high for sigma in self.sigmas)
            and 0.05 <= self.proportions.dog_ratio < 1
            and 0.05 <= self.proportions.structure_ratio <= 1
            and 1 <= self.proportions.truncate <= 5
            # Before anything is allocated per feature: there cannot be more features than statistics.
            and type(self.n_inputs) is int
            and 1 <= self.n_inputs * _per_input(self.sigmas) <= self.mean.size
            and self.input_mean.shape == self.input_std.shape == (self.n_inputs,)
            and are_statistics(self.input_mean, self.input_std)
            and type(self.normalise) is type(self.opponent) is bool
            and (not self.opponent or self.n_inputs == len(OPPONENTS))
        )
        super().validate()


def opponents(planes: np.ndarray) -> np.ndarray:
    """(3,H,W) float32 OPPONENTS of red, green and blue (3,H,W). Exports compute the same, operation by operation."""
    red, green, blue = planes
    both = red + green
    return np.stack([(both + blue) / np.float32(3), red - green, blue - both / np.float32(2)])


def _per_input(sigmas: Sequence[float]) -> int:
    return 1 + len(FILTERS) * len(sigmas)
