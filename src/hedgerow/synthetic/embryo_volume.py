"""A zebrafish embryo in a light-sheet microscope: a volume whose planes are farther apart than its pixels.

The body of `fish` becomes round: its midline also rises and sinks, and every voxel gets the arc length of the nearest
point of this axis and its distance from it. The embryo lies on its side, so that its somites are rings around the
notochord. Bright yolk and dark cavities have the grey values of somites, and neighbouring somites
differ only in their place. The unit of length is the shorter side of a plane.
"""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from hedgerow.synthetic.fish import (
    OUTLINE_AT,
    OUTLINE_HALF_WIDTH,
    SNOUT,
    TAIL_TIP,
    Midline,
    Varied,
    cover,
    draw_midline,
    follow,
    ramp,
)

N_SOMITES = 8
EMBRYO_NAMES = ("background", *(f"somite {number}" for number in range(1, N_SOMITES + 1)), "notochord", "tissue")
OUTSIDE, NOTOCHORD, TISSUE = 0, N_SOMITES + 1, N_SOMITES + 2
ROD, RING = (0.0, 0.3), (0.36, 0.86)  # notochord and somites: distances from the axis, in half-widths of the body


@dataclass(frozen=True)
class Body:
    """The position of each voxel in the body, all (Z, H, W) float64.

    along: arc length, 0 where the somites begin. progress: `along` as a fraction of the somites' total length.
    radius: distance from the axis. half_width: that of the body at this place.
    """

    along: np.ndarray
    progress: np.ndarray
    radius: np.ndarray
    half_width: np.ndarray


def draw_embryo_volume(
    rng: np.random.Generator, depth: int, height: int, width: int, anisotropy: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one embryo: volume (Z, H, W) uint8 and labels (Z, H, W) uint8, numbers in EMBRYO_NAMES.

    anisotropy: the distance of planes, in pixels
    """
    unit, varied = min(height, width), Varied(rng, 1.0)
    planes = ((np.arange(depth) + 0.5) * anisotropy / unit)[:, None, None]
    rows, columns = ((np.arange(height) + 0.5) / unit)[:, None], ((np.arange(width) + 0.5) / unit)[None, :]
    midline = draw_midline(varied, (height / unit, width / unit), cut_off=0.0)
    body = _body(varied, midline, planes, rows, columns)
    labels, cleft = _tissues(varied, body, midline.somites_length)
    grain = _Grain(rng, unit, anisotropy)
    light = _fluorescence(varied, body, labels, cleft, grain)
    yolk = _yolk(varied, midline, planes, rows, columns) * (labels == OUTSIDE)
    light = cover(light, 0.5 + 0.1 * grain.noise(labels.shape, 0.03), yolk)
    return _recorded(rng, light, planes, unit, anisotropy), labels


@dataclass(frozen=True)
class _Grain:
    """Smooth random textures of a volume."""

    rng: np.random.Generator
    unit: int
    anisotropy: float

    def noise(self, shape: tuple[int, ...], grain: float) -> np.ndarray:
        """(Z, H, W) noise of standard deviation 1, with patches of about `grain`."""
        sigma = 0.4 * grain * self.unit
        noise = ndimage.gaussian_filter(
            self.rng.normal(size=shape), (sigma / self.anisotropy, sigma, sigma), truncate=3
        )
        return noise / max(float(noise.std()), 1e-6)


def _body(varied: Varied, midline: Midline, planes: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> Body:
    """Coordinates along and across an axis that rises and sinks between the planes."""
    half_width = varied.uniform(0.14, 0.16)
    flat = follow(midline, rows, columns, half_width)
    middle, room = planes.mean(), max(float(np.ptp(planes)) / 2 - 0.15, 0.0)
    slope, bend = varied.uniform(-0.8, 0.8) * room, varied.uniform(-0.3, 0.3) * room
    axis = np.linspace(SNOUT, TAIL_TIP, len(midline.arc))
    heights = middle + slope * (2 * axis - 1) + bend * np.sin(2 * np.pi * axis)
    above = planes - np.interp(flat.along, midline.arc, heights)
    steepness = np.interp(flat.along, midline.arc, np.gradient(heights, midline.arc))
    # The nearest point of a sloping axis: one Newton step from the point that is nearest in the plane.
    forward = above * steepness / (1 + steepness**2)
    along = np.clip(flat.along + forward, midline.arc[0], midline.arc[-1])
    progress = along / midline.somites_length
    across = above - forward * steepness
    half_widths = half_width * np.interp(progress, OUTLINE_AT, OUTLINE_HALF_WIDTH)
    return Body(along, progress, np.hypot(flat.ventral, across), half_widths)


def _tissues(varied: Varied, body: Body, length: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and how near voxels are to a cleft between somites, from 0 to 1."""
    lengths = np.linspace(1.08, 0.92, N_SOMITES) * varied.uniform(0.94, 1.06, N_SOMITES)
    boundaries = np.concatenate([[0.0], np.cumsum(lengths)]) / lengths.sum() * length
    chevron = body.along - varied.uniform(0.45, 0.65) * body.radius
    number = np.searchsorted(boundaries, chevron, side="right")
    share = body.radius / np.maximum(body.half_width, 1e-6)
    labels = np.where(share < 1, TISSUE, OUTSIDE)
    is_somite = (share >= RING[0]) & (share < RING[1]) & (number >= 1) & (number <= N_SOMITES)
    labels = np.where(is_somite, number, labels)
    is_rod = (share < ROD[1]) & (body.progress > -0.1) & (body.progress < 1.05)
    labels = np.where(is_rod, NOTOCHORD, labels).astype(np.uint8)
    distance = np.abs(chevron[..., None] - boundaries).min(axis=-1)
    return labels, np.exp(-((distance / 0.016) ** 2)) * (share < RING[1])


def _fluorescence(varied: Varied, body: Body, labels: np.ndarray, cleft: np.ndarray, grain: _Grain) -> np.ndarray:
    """Light that the specimen emits, (Z, H, W), about 0 to 1, sharp and without noise."""
    cells, haze = grain.noise(labels.shape, 0.025), grain.noise(labels.shape, 0.15)
    share = body.radius / np.maximum(body.half_width, 1e-6)
    tones = varied.rng.normal(0, 0.03, len(EMBRYO_NAMES))
    tones[[OUTSIDE, NOTOCHORD, TISSUE]] = 0.14, 0.3, varied.uniform(0.42, 0.5)
    tones[1 : N_SOMITES + 1] += varied.uniform(0.44, 0.54)
    contrast = np.where(labels == OUTSIDE, 0.02, 0.07)
    light = tones[labels] + contrast * cells + 0.03 * haze
    sheath = np.exp(-(((share - ROD[1]) / 0.06) ** 2)) * (body.progress > -0.1) * (body.progress < 1.05)
    skin = np.exp(-(((share - 0.97) / 0.05) ** 2))
    return np.clip(light + 0.32 * varied.uniform(0.7, 1.0) * cleft + 0.22 * sheath + 0.15 * skin, 0, None)


def _yolk(varied: Varied, midline: Midline, planes: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Opacity of the yolk ball under the front of the trunk, (Z, H, W) in 0..1."""
    radius = varied.uniform(0.16, 0.19)
    row, column, heading = midline.at(varied.uniform(0.1, 0.2) * midline.somites_length)
    inward = radius + 0.1
    down, right = rows - row - inward * np.cos(heading), columns - column + inward * np.sin(heading)
    above = planes - planes.mean()
    return 1 - ramp(np.sqrt(above**2 + down**2 + right**2) / radius, 0.95, 1.05)


def _recorded(
    rng: np.random.Generator, light: np.ndarray, planes: np.ndarray, unit: int, anisotropy: float
) -> np.ndarray:
    """What the camera records, (Z, H, W) uint8: deeper planes are darker and more blurred, and photons are counted."""
    depth = planes - planes.min()
    pixel = unit / 96
    sharp = ndimage.gaussian_filter(light, (1.2 * pixel / anisotropy, 0.5 * pixel, 0.5 * pixel), truncate=3)
    soft = ndimage.gaussian_filter(sharp, (0, 1.8 * pixel, 1.8 * pixel), truncate=3)
    seen = cover(sharp, soft, np.clip(depth * rng.uniform(0.6, 1.0), 0, 0.9))
    seen = seen * np.exp(-depth * rng.uniform(0.2, 0.6)) * rng.uniform(1.1, 1.5) + 0.03
    seen = seen + rng.normal(size=seen.shape) * np.sqrt(np.clip(seen, 0.01, None) / rng.uniform(250, 600))
    return np.rint(255 * np.clip(seen, 0, 1)).astype(np.uint8)
