"""The filter bank: for each image channel, its raw intensity and eight filters at every scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from hedgerow.config import MAX_SIGMAS, StackConfig
from hedgerow.errors import ConfigError
from hedgerow.features.protocol import (
    MAX_HALO,
    Arrays,
    FeatureSet,
    are_statistics,
    check_features,
    image_statistics,
    sampled_tiles,
    unfitted,
)
from hedgerow.features.volume_scale import VOLUME_FILTERS, FilterScale, SeparableFilter, volume_channels
from hedgerow.images.reading import SourcePlanes
from hedgerow.images.regions import Region
from hedgerow.kernels.buffers import empty
from hedgerow.kernels.cpu import filters as kernels
from hedgerow.kernels.definition.gaussian import gaussian_weights, is_flat, volume_weights
from hedgerow.kernels.weak_cache import WeakCache
from hedgerow.settings import limits_of
from hedgerow.threads import get_threads, map_threads

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
RANGE_VOXELS = 2**18  # of a volume, from which they are taken
MIN_ANISOTROPY, MAX_ANISOTROPY = 0.01, 1e4
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

    def radius(self, sigma: float) -> int:
        """Where `gaussian_weights` cuts this Gaussian off."""
        return int(self.truncate * sigma + 0.5)

    def of_volume(self, sigma: float, anisotropy: float) -> FilterScale:
        """The filters of a scale in a volume whose slices are `anisotropy` pixels apart."""

        def gaussian(sigma: float) -> SeparableFilter:
            across, along = (volume_weights(sigma, step, self.truncate) for step in (anisotropy, 1.0))
            reach = self.radius(sigma)
            return SeparableFilter(across, along, (self.radius(sigma / anisotropy), reach, reach))

        return FilterScale(gaussian(sigma), gaussian(self.dog_ratio * sigma), gaussian(self.structure_ratio * sigma))


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
    """(C,) float32 each: the quantile LOW of an image (C,H,W), in memory or not, or of a volume (C,Z,H,W), and the
    distance from it to HIGH.

    Quantiles are values of pixels, never between two, so that no rounding depends on how the image is read.
    """
    if isinstance(image, SourcePlanes):  # every part of a file is a new object
        return _ranges.get(image.source, "range", lambda: _intensity_range(image))
    return _intensity_range(image)


def _intensity_range(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    (tiles,) = sampled_tiles([image.shape[1:]], RANGE_TILES)
    if image.ndim == 4:
        step = int(np.ceil(np.cbrt(sum(np.prod(tile.shape) for tile in tiles) / RANGE_VOXELS)))
        parts = [tile.of_volume(image)[:, ::step, ::step, ::step] for tile in tiles]
    else:
        step = int(np.ceil(np.sqrt(len(tiles))))
        parts = [tile.of(image)[:, ::step, ::step] for tile in tiles]
    sampled = [part.reshape(image.shape[0], -1) for part in parts]
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
    dimensions, anisotropy: 3 if the filters look into other slices, which are `anisotropy` pixels apart; a scale that
                            is narrower than `MIN_SIGMA_Z` slices is computed slice by slice all the same
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
    dimensions: int = 2
    anisotropy: float = 1.0

    @classmethod
    def from_images(cls, images: Sequence[np.ndarray], config: StackConfig) -> Self:
        n_inputs = len(images[0])
        zero, unit = unfitted(n_inputs).values() if config.normalise else image_statistics(images)
        is_opponent = config.opponent and n_inputs == len(OPPONENTS)
        if is_opponent and not config.normalise:  # grey stays grey
            unit = np.full_like(unit, unit.mean())
        mean, std = unfitted(n_inputs * (1 + len(FILTERS) * len(config.sigmas))).values()
        return cls(n_inputs, config.sigmas, Proportions(), zero, unit, mean, std, config.normalise, is_opponent)

    def for_volumes(self, anisotropy: float) -> Self:
        if not MIN_ANISOTROPY <= anisotropy <= MAX_ANISOTROPY:
            raise ConfigError(f"slices {anisotropy:g} pixels apart are not a volume; check the voxel size.")
        bank = replace(self, dimensions=3, anisotropy=float(anisotropy))
        if bank.halo_z > MAX_HALO:
            raise ConfigError(
                f"scale {max(self.sigmas):g} looks {bank.halo_z} slices far; choose scales of a few pixels."
            )
        return bank.with_statistics(*unfitted(bank.n_features).values())

    @property
    def names(self) -> tuple[str, ...]:
        names = []
        for c in range(self.n_inputs):
            prefix = f"{OPPONENTS[c]} " if self.opponent else f"c{c} " if self.n_inputs > 1 else ""
            names.append(f"{prefix}raw")
            names += [f"{prefix}{kind} {sigma:g}" for sigma in self.sigmas for kind in self._filters_of(sigma)]
        return tuple(names)

    @property
    def n_features(self) -> int:
        return self.n_inputs * self._per_input

    @property
    def _per_input(self) -> int:
        return 1 + sum(len(self._filters_of(sigma)) for sigma in self.sigmas)

    def _filters_of(self, sigma: float) -> tuple[str, ...]:
        return FILTERS if self._is_flat(sigma) else VOLUME_FILTERS

    def _is_flat(self, sigma: float) -> bool:
        return self.dimensions == 2 or is_flat(sigma, self.anisotropy)

    @property
    def halo(self) -> int:
        return max(self._halo_of(sigma) for sigma in self.sigmas)

    @property
    def halo_z(self) -> int:
        deep = (sigma for sigma in self.sigmas if not self._is_flat(sigma))
        return max((self._halo_of(sigma, self.anisotropy) for sigma in deep), default=0)

    def _halo_of(self, sigma: float, step: float = 1.0) -> int:
        """How many steps of this length, in pixels, the filters of a scale look."""
        inner, outer = sigma / step, self.proportions.structure_ratio * sigma / step
        return self.proportions.radius(inner) + self.proportions.radius(outer)

    def raw_in(self, image: np.ndarray, region: Region) -> np.ndarray:
        """Channels and scales are divided among threads; each scale is computed only with the surroundings it needs."""
        whole = Region.whole(image.shape[1:])
        seen = region.grown(self.halo, whole)
        centred = self._centred(seen.of(image), image)
        per_input = self._per_input
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

    def _centred(self, part: np.ndarray, image: np.ndarray) -> np.ndarray:
        """The channels that are filtered, in a part (C,...) of an image.

        Centring first keeps precision where a 16-bit image has a large offset and little contrast.
        """
        zero, unit = intensity_range(image) if self.normalise else (self.input_mean, self.input_std)
        per_channel = (-1, *[1] * (part.ndim - 1))
        centred = (part - zero.reshape(per_channel)) / unit.reshape(per_channel)
        return opponents(centred) if self.opponent else centred

    def raw_in_volume(self, volume: np.ndarray, region: Region) -> np.ndarray:
        """As `raw_in`; if there are fewer channels and scales than threads need, slices are divided, too."""
        if self.dimensions == 2:
            return super().raw_in_volume(volume, region)
        whole = Region.whole(volume.shape[1:])
        seen = region.grown((self.halo_z, self.halo, self.halo), whole)
        centred = self._centred(seen.of_volume(volume), volume)
        features = empty((self.n_features, *region.shape))
        features[:: self._per_input] = region.within(seen).of_volume(centred)

        def fill(job: tuple[int, float, np.ndarray, Region]) -> None:
            c, sigma, own, slab = job
            if self._is_flat(sigma):
                self._fill_slices(centred[c], seen, whole, slab, sigma, own[:, slab.within(region).front :])
                return
            scale = self.proportions.of_volume(sigma, self.anisotropy)
            part = slab.grown(scale.halo, whole)
            channel = part.within(seen).of_volume(centred[c])
            volume_channels(channel, part, whole, slab, scale, own, slab.within(region).front)

        jobs = []
        for c in range(self.n_inputs):
            first = c * self._per_input + 1
            for sigma in self.sigmas:
                end = first + len(self._filters_of(sigma))
                jobs += [(c, sigma, features[first:end], slab) for slab in self._slabs(region, sigma)]
                first = end
        list(map_threads(fill, sorted(jobs, key=lambda job: -job[1])))
        return features

    def _slabs(self, region: Region, sigma: float) -> Sequence[Region]:
        """The region in as many parts as its threads need, none of them thin beside what it computes again."""
        n_wanted = -(-2 * get_threads() // (self.n_inputs * len(self.sigmas))) if get_threads() > 1 else 1
        again = 0 if self._is_flat(sigma) else self.proportions.radius(sigma / self.anisotropy)
        return region.tiles((max(-(-region.depth // n_wanted), again, 1), region.height, region.width))

    def _fill_slices(
        self, channel: np.ndarray, seen: Region, whole: Region, region: Region, sigma: float, out: np.ndarray
    ) -> None:
        part = region.grown((0, self._halo_of(sigma), self._halo_of(sigma)), whole)
        channels = empty((len(FILTERS), part.height, part.width))
        for z, plane in enumerate(part.within(seen).of_volume(channel)):
            scale_channels(plane, sigma, self.proportions, channels)
            out[:, z] = region.within(part).of(channels)

    def settings(self) -> dict[str, Any]:
        own = {"sigmas": list(self.sigmas), "proportions": vars(self.proportions).copy()}
        # Files of banks without these options are those of versions that did not have them.
        options: dict[str, Any] = {name: True for name in ("normalise", "opponent") if getattr(self, name)}
        if self.dimensions == 3:
            options |= {"dimensions": 3, "anisotropy": self.anisotropy}
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
        numbers = (*self.sigmas, *vars(self.proportions).values(), self.anisotropy)
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
            and type(self.dimensions) is int
            and self.dimensions in (2, 3)
            and MIN_ANISOTROPY <= self.anisotropy <= MAX_ANISOTROPY
            and 1 <= self.n_features <= self.mean.size
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
