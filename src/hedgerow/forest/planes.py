"""The training set in the form used for growing, planes of all images side by side.

A pixel takes one byte: each channel is quantised once, at up to 255 edges taken from its quantiles, and a pixel's code
is the number of edges at or below its value. So `code >= k` means the same as `value >= edges[k-1]`: a tree grown on
codes sends every pixel the same way as the finished tree, which has edges as thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow import memory
from hedgerow.config import StackConfig
from hedgerow.errors import InputError
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import Forest
from hedgerow.forest.level_input import LevelInput
from hedgerow.forest.samples import Samples, number_type
from hedgerow.images.array_checks import as_volume, as_volumes, refuse_volume
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.plane_ops import box_averaged, encode
from hedgerow.threads import map_threads

N_EDGES = 255
PROBA_EDGES = ((np.arange(1, N_EDGES + 1) / (N_EDGES + 1)) ** 2).astype(np.float32)
"""Edges for class probabilities: known in advance, and closest together near 0, which separates rare classes."""


@dataclass(frozen=True)
class TrainingPlanes:
    """Everything that splits may read from I training images: each pair of channel and radius is a plane.

    codes:  (P,pixels) uint8, or (0,0) if values are used
    values: (P,pixels) float32, or (0,0)
    edges:  (P,255) float32, the values that separate the codes
    start, depth, height, width: (I,): the first pixel of each image, and its size
    stretch: (pixels,) float32 factor for offsets, or empty
    outside: (P,) float32 constants outside the image, or empty
    radii:  of the planes of each channel
    proposals: the kind of splits, as in `FeatureSet`
    """

    codes: np.ndarray
    values: np.ndarray
    edges: np.ndarray
    start: np.ndarray
    depth: np.ndarray
    height: np.ndarray
    width: np.ndarray
    stretch: np.ndarray
    outside: np.ndarray
    radii: tuple[int, ...]
    proposals: str

    @property
    def array(self) -> np.ndarray:
        """(P,pixels): the codes, or the values if they are used."""
        return self.codes if len(self.codes) else self.values

    @property
    def n_channels(self) -> int:
        return len(self.array) // len(self.radii)

    def image(self, i: int) -> np.ndarray:
        """(P,Z,H,W) view of image i."""
        return self._view(self.array, i)

    def _view(self, array: np.ndarray, i: int) -> np.ndarray:
        size = int(self.depth[i]), int(self.height[i]), int(self.width[i])
        part = array[..., int(self.start[i]) :][..., : math.prod(size)]
        return part.reshape(*part.shape[:-1], *size)

    def first_channels(self, n_channels: int) -> TrainingPlanes:
        """The same images with their first channels only."""
        n = n_channels * len(self.radii)
        return replace(
            self, codes=self.codes[:n], values=self.values[:n], edges=self.edges[:n], outside=self.outside[:n]
        )

    def write(self, i: int, first_channel: int, channels: np.ndarray) -> None:
        """Write channels (n,Z,H,W) of image i, at every radius."""
        out = self.image(i)

        def put(c: int) -> None:
            for k, radius in enumerate(self.radii):
                p = (first_channel + c) * len(self.radii) + k
                averaged = self._averaged(channels[c], radius, p)
                if len(self.codes):
                    encode(np.ascontiguousarray(averaged).reshape(-1), self.edges[p], out[p].reshape(-1))
                else:
                    out[p] = averaged

        list(map_threads(put, range(len(channels))))

    def _averaged(self, channel: np.ndarray, radius: int, plane: int) -> np.ndarray:
        return box_averaged(channel, radius, float(self.outside[plane]) if len(self.outside) else None)

    def set_edges(self, per_image: Sequence[np.ndarray], n_channels: int) -> None:
        """Choose the edges of the first channels from their values (n_planes,S) at the samples of each image."""
        values = np.concatenate(per_image, axis=1)

        def fit(p: int) -> None:
            self.edges[p] = fit_edges(values[p])

        list(map_threads(fit, range(n_channels * len(self.radii))))

    def averaged_at(self, channels: np.ndarray, places: tuple[np.ndarray, ...]) -> np.ndarray:
        """(n_planes,S): what the planes of channels (n,Z,H,W) will hold at places (slices, rows, columns)."""
        return np.stack(
            [
                self._averaged(channel, radius, c * len(self.radii) + k)[places]
                for c, channel in enumerate(channels)
                for k, radius in enumerate(self.radii)
            ]
        )

    def input(self, i: int, region: Region) -> LevelInput:
        """The input of a forest over these planes for a region of image i."""
        stretch = self._view(self.stretch, i)[0] if len(self.stretch) else None
        return LevelInput(self.image(i), region, stretch, self.outside if len(self.outside) else None)

    def over_channels(self, grown: Forest) -> Forest:
        """The forest over channels, with radii and real thresholds, that makes the same decisions as one over planes,
        whose channels are the planes and whose thresholds are codes if the planes hold codes."""
        n_radii, threshold = len(self.radii), grown.threshold
        if len(self.codes):
            code = np.maximum(grown.threshold, 1).astype(np.int64)
            at_split = self.edges[grown.channel[:, 0], code - 1]
            threshold = np.where(grown.is_split, at_split, 0).astype(np.float32)
        return replace(
            grown,
            threshold=threshold,
            channel=(grown.channel // n_radii).astype(np.int32),
            radius=np.array(self.radii, np.int32)[grown.channel % n_radii],
            n_channels=self.n_channels,
        )


def build_planes(
    labelled: LabelledSet,
    features: FeatureSet,
    computed: Callable[[int], np.ndarray],
    samples: Samples,
    config: StackConfig,
) -> TrainingPlanes:
    """Planes that hold the features, followed by empty ones for the C outputs of a level if there are several levels.

    computed: maps the number of an image to its features (F,H,W), or (F,Z,H,W) of a volume
    """
    targets = [as_volume(image.target) for image in labelled]
    n_proba = labelled.n_classes if config.n_levels > 1 else 0
    radii = config.context.radii
    n_channels = features.n_features + n_proba
    pixels = sum(target.size for target in targets)
    # Sums of probes need real values; for a single probe, comparisons suffice.
    summed = features.proposals != "offsets" or config.context.n_probes > 1
    shape, none = (n_channels * len(radii), pixels), (0, 0)
    _check_memory(pixels, shape[0] * (4 if summed else 1))
    outside = features.outside(n_proba)
    refuse_volume(max(len(target) for target in targets), None, outside)
    stretch = [part.ravel() for part in (features.stretch(image.planes) for image in labelled) if part is not None]
    edges = np.full((shape[0], N_EDGES), np.inf, np.float32)
    edges[features.n_features * len(radii) :] = PROBA_EDGES
    planes = TrainingPlanes(
        codes=np.empty(none if summed else shape, np.uint8),
        values=np.empty(shape if summed else none, np.float32),
        edges=edges,
        start=np.cumsum([0, *(target.size for target in targets[:-1])]).astype(number_type(pixels)),
        depth=np.array([target.shape[0] for target in targets], np.int32),
        height=np.array([target.shape[1] for target in targets], np.int32),
        width=np.array([target.shape[2] for target in targets], np.int32),
        stretch=np.concatenate(stretch or [np.zeros(0, np.float32)]),
        outside=np.repeat(outside, len(radii)) if outside is not None else np.zeros(0, np.float32),
        radii=radii,
        proposals=features.proposals,
    )
    if not summed:
        at_samples = []
        for i in range(len(labelled)):
            mine = samples.image == i
            places = samples.z[mine], samples.row[mine], samples.column[mine]
            at_samples.append(planes.averaged_at(as_volumes(computed(i)), places))
        planes.set_edges(at_samples, features.n_features)
    for i in range(len(labelled)):
        planes.write(i, 0, as_volumes(computed(i)))
    return planes


def fit_edges(values: np.ndarray) -> np.ndarray:
    """(255,) float32 ascending edges for a channel with sampled values (S,); unused edges are +inf.

    With at most 256 different values there is an edge between any two neighbours, so nothing is lost.
    """
    distinct = np.unique(values)
    if len(distinct) > N_EDGES + 1:
        ranks = np.linspace(0, len(values) - 1, N_EDGES + 2)[1:-1].round().astype(np.int64)
        upper = np.unique(np.sort(values)[ranks])
        upper = upper[upper > distinct[0]]
        lower = distinct[np.searchsorted(distinct, upper) - 1]
    else:
        lower, upper = distinct[:-1], distinct[1:]
    middle = (lower + (upper - lower) * np.float32(0.5)).astype(np.float32)
    edges = np.full(N_EDGES, np.inf, np.float32)
    # If two floats have none between them, the upper one separates them.
    edges[: len(middle)] = np.where(middle > lower, middle, upper)
    return edges


def _check_memory(n_pixels: int, n_bytes: int) -> None:
    """Refuse a training set that does not fit: a system that promises more memory than it has kills the process."""
    needed, free = n_pixels * n_bytes, memory.available()
    if free is not None and needed > free:
        raise InputError(
            f"the training images and their copies have {n_pixels:,} pixels of {n_bytes} bytes each, which take "
            f"{memory.gigabytes(needed)} of memory, but only {memory.gigabytes(free)} are available; give fewer "
            "images, crop them, make fewer copies, or label them sparsely."
        )
