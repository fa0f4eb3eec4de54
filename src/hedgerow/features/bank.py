"""The input features of a pixel: a filter bank with a name for every channel, or the user's own, standardised."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import InputError, ModelError
from hedgerow.threads import map_threads

KINDS = (
    "gaussian",
    "laplacian",
    "gradient",
    "dog",
    "structure_high",
    "structure_low",
    "hessian_high",
    "hessian_low",
)
"""Channels of each scale; `dog` is gaussian(0.66 sigma) - gaussian(sigma), the tensor is smoothed at sigma / 2."""
DOG_RATIO = 0.66
STRUCTURE_RATIO = 0.5
TRUNCATE = 4.0


def gaussian_weights(sigma: float) -> np.ndarray:
    """(3, 1+R) float32: the sampled Gaussian and its two derivatives at distances 0..R, R a multiple of 4.

    The Gaussian ends at 4 sigma and sums to one, as in scipy.ndimage; what lies beyond is zero.
    """
    radius = int(TRUNCATE * sigma + 0.5)
    distance = np.arange(radius + 1.0)
    bell = np.exp(-0.5 * (distance / sigma) ** 2)
    bell /= bell[0] + 2 * bell[1:].sum()
    weights = np.stack([bell, distance / sigma**2 * bell, (distance**2 / sigma**4 - 1 / sigma**2) * bell])
    return np.pad(weights, ((0, 0), (0, -radius % 4))).astype(np.float32)


def _padded(plane: np.ndarray, radius: int) -> np.ndarray:
    return np.pad(plane, radius, mode="symmetric").ravel()


def scale_channels(plane: np.ndarray, sigma: float, out: np.ndarray) -> None:
    """Fill out (8,H,W) with KINDS of one image channel (H,W) at one scale. Borders mirror, edge pixel included."""
    from hedgerow.kernels.cpu import filters as kernels

    weights = gaussian_weights(sigma)
    tensor = np.empty((3, *plane.shape), np.float32)
    kernels.derivatives(_padded(plane, weights.shape[1] - 1), weights, out, tensor)
    narrow = gaussian_weights(DOG_RATIO * sigma)
    kernels.smooth(_padded(plane, narrow.shape[1] - 1), narrow, out[3])
    out[3] -= out[0]
    outer = gaussian_weights(STRUCTURE_RATIO * sigma)
    for product in tensor:
        kernels.smooth(_padded(product, outer.shape[1] - 1), outer, product)
    kernels.symmetric_eigenvalues(tensor[0], tensor[1], tensor[2], out[4], out[5])


@dataclass(frozen=True)
class FeatureSet:
    """Turns an image (C,H,W) into features (F,H,W), each standardised over the training set.

    kind:       "bank" (raw intensity and KINDS at each of `sigmas`, for every image channel), "channels" (the image's
                own channels), or "depth" (metres, and whether anything was seen)
    input_mean, input_std: (C,) float32, of the image channels, removed before filtering
    mean, std:  (F,) float32, of the features
    """

    kind: str
    n_inputs: int
    sigmas: tuple[float, ...]
    depth_unit: float
    nearest: float
    background: float
    input_mean: np.ndarray
    input_std: np.ndarray
    mean: np.ndarray
    std: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """One name a channel."""
        if self.kind == "depth":
            return ("depth", "present")
        if self.kind == "channels":
            return tuple(f"channel {c}" for c in range(self.n_inputs))
        names = []
        for c in range(self.n_inputs):
            prefix = f"c{c} " if self.n_inputs > 1 else ""
            names.append(f"{prefix}raw")
            names += [f"{prefix}{kind} {sigma:g}" for sigma in self.sigmas for kind in KINDS]
        return tuple(names)

    @property
    def n_features(self) -> int:
        per_input = 1 + len(KINDS) * len(self.sigmas) if self.kind == "bank" else 1
        return 2 if self.kind == "depth" else self.n_inputs * per_input

    @property
    def support(self) -> int:
        """How far, in pixels, a feature looks from its own pixel."""
        if self.kind != "bank":
            return 0
        return max(int(TRUNCATE * s + 0.5) + int(TRUNCATE * STRUCTURE_RATIO * s + 0.5) for s in self.sigmas)

    @property
    def max_reach(self) -> float:
        """The largest factor by which `reach` stretches an offset."""
        return 1.0 / self.nearest if self.kind == "depth" else 1.0

    def compute(self, image: np.ndarray) -> np.ndarray:
        """Features (F,H,W) float32 of an image (C,H,W) float32. The channels of the bank are shared out to threads."""
        from hedgerow.kernels.cpu import filters as kernels

        if image.shape[0] != self.n_inputs:
            raise InputError(
                f"the image has {image.shape[0]} channel(s) but the model was trained on {self.n_inputs}; "
                "give images of the same kind."
            )
        if self.kind == "depth":
            features = np.stack([self._metres(image), image[0] > 0]).astype(np.float32)
        elif self.kind == "channels":
            features = np.array(image, np.float32)
        else:
            features = self._bank(image)
        flat = features.reshape(len(features), -1)
        kernels.standardise(flat, self.mean, np.float32(1) / self.std)
        return features

    def _bank(self, image: np.ndarray) -> np.ndarray:
        # Centring first keeps precision where a 16-bit image has a large offset and little contrast.
        shape = (-1, 1, 1)
        image = (image - self.input_mean.reshape(shape)) / self.input_std.reshape(shape)
        per_input = 1 + len(KINDS) * len(self.sigmas)
        features = np.empty((self.n_inputs * per_input, *image.shape[1:]), np.float32)
        features[::per_input] = image

        def fill(job: tuple[int, int]) -> None:
            c, s = job
            first = c * per_input + 1 + s * len(KINDS)
            scale_channels(image[c], self.sigmas[s], features[first : first + len(KINDS)])

        coarse_first = sorted(range(len(self.sigmas)), key=lambda s: -self.sigmas[s])
        list(map_threads(fill, [(c, s) for s in coarse_first for c in range(self.n_inputs)]))
        return features

    def _metres(self, image: np.ndarray) -> np.ndarray:
        metres = image[0] / np.float32(self.depth_unit)
        return np.where(image[0] > 0, np.clip(metres, self.nearest, self.background), self.background)

    def reach(self, image: np.ndarray) -> np.ndarray | None:
        """(H,W) float32 factor for the offsets at each pixel: one over its depth in metres; None: leave them."""
        if self.kind != "depth":
            return None
        return np.float32(1) / self._metres(image).astype(np.float32)

    def outside(self, n_proba: int) -> np.ndarray | None:
        """(F + n_proba,) float32 value of each channel outside the image; None: the nearest edge pixel's.

        Depth images continue as background; no class is likely there.
        """
        if self.kind != "depth":
            return None
        beyond = (np.array([self.background, 0.0], np.float32) - self.mean) * (np.float32(1) / self.std)
        return np.concatenate([beyond, np.zeros(n_proba, np.float32)]).astype(np.float32)

    def validate(self) -> None:
        """Raise ModelError unless the settings and statistics are usable and fit each other."""
        fits = (
            self.kind in ("bank", "channels", "depth")
            and 1 <= self.n_inputs <= 100_000
            and len(self.sigmas) <= 100
            and (len(self.sigmas) > 0) == (self.kind == "bank")
            and all(0.1 <= sigma <= 1000 for sigma in self.sigmas)
            and 0 < self.depth_unit < np.inf
            and 0 < self.nearest <= self.background < np.inf
            and self.nearest >= 1e-3
            and self.input_mean.shape == self.input_std.shape == (self.n_inputs,)
            and self.mean.shape == self.std.shape == (self.n_features,)
            and all(np.isfinite(a).all() for a in (self.input_mean, self.input_std, self.mean, self.std))
            and bool((self.std > 0).all() and (self.input_std > 0).all())
        )
        if not fits:
            raise ModelError("its feature settings are inconsistent, so it is damaged or was edited.")

    def to_dict(self) -> dict[str, Any]:
        """The settings; the statistics are arrays and travel beside them."""
        return {
            "kind": self.kind,
            "n_inputs": self.n_inputs,
            "sigmas": list(self.sigmas),
            "depth_unit": self.depth_unit,
            "nearest": self.nearest,
            "background": self.background,
        }


def fit_features(images: Iterable[np.ndarray], config: StackConfig) -> FeatureSet:
    """The feature set for these training images, each (C,H,W) float32, with its statistics."""
    images = list(images)
    n_inputs = len(images[0])
    if config.features == "depth" and n_inputs != 1:
        raise InputError(
            f"depth features need images of one channel, and these have {n_inputs}; "
            "give depth maps, or choose features='bank' or 'channels'."
        )
    identity = np.zeros(n_inputs, np.float32), np.ones(n_inputs, np.float32)
    plain = FeatureSet(
        kind=config.features,
        n_inputs=n_inputs,
        sigmas=config.sigmas if config.features == "bank" else (),
        depth_unit=config.context.depth_unit,
        nearest=config.context.nearest,
        background=config.context.background,
        input_mean=identity[0],
        input_std=identity[1],
        mean=np.zeros(0, np.float32),
        std=np.ones(0, np.float32),
    )
    if config.features == "bank":
        input_mean, input_std = _statistics(image.reshape(n_inputs, -1) for image in images)
        plain = replace(plain, input_mean=input_mean, input_std=input_std)
    raw = replace(plain, mean=np.zeros(plain.n_features, np.float32), std=np.ones(plain.n_features, np.float32))

    def values(image: np.ndarray) -> np.ndarray:
        features = raw.compute(image).reshape(raw.n_features, -1)
        # The background would drown the body's own statistics.
        return features[:, features[1] > 0] if raw.kind == "depth" else features

    mean, std = _statistics(values(image) for image in images)
    if raw.kind == "depth":
        mean[1], std[1] = 0.0, 1.0
    return replace(raw, mean=mean, std=std)


def _statistics(parts: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (n,) float32 over the second axis of (n, pixels) parts; a constant row gets 1."""
    count = 0
    total = square = np.zeros(1)
    for part in parts:
        count += part.shape[1]
        total = total + part.sum(axis=1, dtype=np.float64)
        # Not `dot`: the library behind it has threads of its own, and sums in an order that depends on their number.
        square = square + np.array([np.einsum("i,i", wide, wide) for wide in (row.astype(np.float64) for row in part)])
    mean = total / max(count, 1)
    variance = square / max(count, 1) - mean**2
    # Rounding of the two sums leaves this much where the row is constant.
    flat = variance <= 1e-10 * (square / max(count, 1)) + 1e-30
    return mean.astype(np.float32), np.where(flat, 1.0, np.sqrt(np.maximum(variance, 0))).astype(np.float32)
