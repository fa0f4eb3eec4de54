"""A zebrafish embryo under the microscope, drawn in coordinates that follow its body.

Every pixel gets the arc length of the nearest point of a curved midline, and its signed distance from this point. In
these coordinates an embryo is straight, and somites are intervals of arc length bent into chevrons. The unit of length
is the image's shorter side.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

N_SOMITES = 21
SOMITE_NAMES = ("background", *(f"somite {number}" for number in range(1, N_SOMITES + 1)))

# The body in units of the somites' total length: the first somite begins at 0, and the last one ends at 1.
SNOUT, TAIL_TIP = -0.3, 1.13
OUTLINE_AT = (SNOUT, -0.29, -0.26, -0.2, -0.12, 0.0, 0.15, 0.4, 0.7, 1.0, 1.08, 1.12, TAIL_TIP)
OUTLINE_HALF_WIDTH = (0.0, 0.5, 0.9, 1.15, 1.1, 0.92, 1.0, 0.95, 0.75, 0.5, 0.32, 0.18, 0.0)


@dataclass(frozen=True)
class Midline:
    """N points from snout to tail tip; the ventral side lies towards positive curvature.

    arc, rows, columns, headings, curvatures: (N,) float64, positions already placed in the image.
    """

    arc: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    headings: np.ndarray
    curvatures: np.ndarray
    somites_length: float

    def at(self, arc: float) -> tuple[float, float, float]:
        """The row, the column and the heading at an arc length."""
        row, column, heading = (np.interp(arc, self.arc, line) for line in (self.rows, self.columns, self.headings))
        return float(row), float(column), float(heading)


@dataclass(frozen=True)
class BodyCoordinates:
    """The position of each pixel along and across the body, all (H, W) float64.

    along: arc length, 0 where the somites begin. ventral: signed distance from the midline. progress: `along` as a
    fraction of the somites' total length. half_width: that of the body at this place.
    """

    along: np.ndarray
    ventral: np.ndarray
    progress: np.ndarray
    half_width: np.ndarray


@dataclass(frozen=True)
class SomitePattern:
    """boundaries: (22,) arc lengths on the midline. chevron: position in the bent pattern, (H, W).

    labels: (H, W) uint8, 0 outside the somites.
    """

    boundaries: np.ndarray
    chevron: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Varied:
    """Random properties of a specimen; variety: how much specimens differ, from 0 (not at all) to 1."""

    rng: np.random.Generator
    variety: float

    def uniform(self, low: float, high: float, n: int | None = None) -> Any:
        """A number between low and high; with less variety, it is nearer to their middle."""
        drawn = self.rng.uniform(low, high, n)
        return drawn if self.variety == 1 else (low + high) / 2 + self.variety * (drawn - (low + high) / 2)

    def happens(self, fraction: float) -> bool:
        """Whether something happens that happens to this fraction of the specimens, or to fewer with less variety."""
        return bool(self.rng.uniform() < fraction * self.variety)


def draw_embryo(
    rng: np.random.Generator, height: int, width: int, variety: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one embryo: image (H, W) uint8 and labels (H, W) uint8."""
    varied = Varied(rng, variety)
    unit = min(height, width)
    frame = (height / unit, width / unit)
    rows = ((np.arange(height) + 0.5) / unit)[:, None]
    columns = ((np.arange(width) + 0.5) / unit)[None, :]
    midline = draw_midline(varied, frame)
    body = follow(midline, rows, columns, half_width=varied.uniform(0.064, 0.077))
    pattern = _somite_pattern(varied, body, midline.somites_length)
    light = _paint(varied, midline, body, pattern, rows, columns)
    return _photograph(rng, light, body, unit), pattern.labels


def draw_midline(varied: Varied, frame: tuple[float, float], cut_off: float = 0.25) -> Midline:
    """Bend a body around its yolk, turn it, and place it in the frame; one end is out of view in this fraction of the
    specimens.

    The ranges resemble those of mounted specimens: wide enough that no place in the image identifies a somite, and
    narrow enough that a forest can learn the body from sixteen specimens.
    """
    length = varied.uniform(0.92, 0.98)
    progress = np.linspace(SNOUT, TAIL_TIP, 240)
    step = (progress[1] - progress[0]) * length
    straightening = ramp(progress, varied.uniform(0.25, 0.35), varied.uniform(0.6, 0.75))
    bend_at_yolk, bend_at_tail = varied.uniform(2.1, 2.5), varied.uniform(0.4, 1.2)
    curvatures = bend_at_yolk * (1 - straightening) + bend_at_tail * straightening
    curvatures += 0.2 * np.sin(2 * np.pi * (progress * varied.uniform(0.8, 1.6) + varied.uniform(0, 1)))
    headings = np.cumsum(curvatures) * step
    headings += np.deg2rad(varied.uniform(-10, 10)) - headings.mean()
    rows, columns = np.cumsum(np.sin(headings)) * step, np.cumsum(np.cos(headings)) * step

    places = np.stack([rows, columns])
    shown = places[:, (progress >= 0) & (progress <= 1)]
    shrink = min(1.0, *(0.9 * np.array(frame) / np.ptp(shown, axis=1)))
    offset = varied.uniform(-0.05, 0.05, 2)
    if varied.happens(cut_off):
        # Push one end out of view, so that the somites cannot be counted from that end.
        outward = shown[:, varied.rng.choice([0, -1])] - shown.mean(axis=1)
        offset += varied.uniform(0.08, 0.2) * outward / np.linalg.norm(outward)
    centre = (shown.min(axis=1) + shown.max(axis=1)) / 2
    rows, columns = (places - centre[:, None]) * shrink + (np.array(frame) / 2 + offset)[:, None]
    length *= shrink
    return Midline(progress * length, rows, columns, headings, curvatures / shrink, length)


def follow(midline: Midline, rows: np.ndarray, columns: np.ndarray, half_width: float) -> BodyCoordinates:
    """Find the body coordinates of every pixel: nearest point of a coarse grid, then Newton steps."""
    block = 8
    down = rows[block // 2 :: block, :, None] - midline.rows
    right = columns[:, block // 2 :: block, None] - midline.columns
    nearest = midline.arc[(down**2 + right**2).argmin(axis=-1)]
    block_row = np.minimum(np.arange(len(rows)) // block, nearest.shape[0] - 1)
    block_column = np.minimum(np.arange(columns.shape[1]) // block, nearest.shape[1] - 1)
    along = nearest[block_row[:, None], block_column]

    def at(values: np.ndarray) -> np.ndarray:
        return np.interp(along, midline.arc, values)

    for _ in range(2):
        sine, cosine = np.sin(at(midline.headings)), np.cos(at(midline.headings))
        down, right = rows - at(midline.rows), columns - at(midline.columns)
        forward, ventral = down * sine + right * cosine, down * cosine - right * sine
        # Beyond the centre of curvature the steps do not converge; those pixels are far away.
        along = along + forward / np.maximum(1 - at(midline.curvatures) * ventral, 0.3)
        along = np.clip(along, midline.arc[0], midline.arc[-1])
    progress = along / midline.somites_length
    widths = half_width * np.interp(progress, OUTLINE_AT, OUTLINE_HALF_WIDTH)
    return BodyCoordinates(along, ventral, progress, widths)


def _somite_pattern(varied: Varied, body: BodyCoordinates, length: float) -> SomitePattern:
    """Divide the trunk into somites that get shorter towards the tail and point to the head."""
    lengths = np.linspace(1.08, 0.92, N_SOMITES) * varied.uniform(0.96, 1.04, N_SOMITES)
    boundaries = np.concatenate([[0.0], np.cumsum(lengths)]) / lengths.sum() * length
    tip = 0.012
    lag = varied.uniform(0.55, 0.8) * (np.hypot(body.ventral, tip) - tip)
    chevron = body.along - lag
    number = np.searchsorted(boundaries, chevron, side="right")
    inside = (np.abs(body.ventral) < body.half_width) & (number >= 1) & (number <= N_SOMITES)
    return SomitePattern(boundaries, chevron, np.where(inside, number, 0).astype(np.uint8))


def _paint(
    varied: Varied,
    midline: Midline,
    body: BodyCoordinates,
    pattern: SomitePattern,
    rows: np.ndarray,
    columns: np.ndarray,
) -> np.ndarray:
    """Light that passes through the specimen, (H, W) float64 around 0.5, sharp and without noise."""
    rng, shape = varied.rng, body.along.shape
    pixel = 1 / min(shape)
    light = 0.55 + 0.03 * _smooth_noise(rng, rows / 0.05, columns / 0.05)
    yolk = _yolk_thickness(varied, midline, body, rows, columns)
    granules = _smooth_noise(rng, rows / 0.02, columns / 0.02)
    light = cover(light, 0.47 + 0.06 * granules, np.clip(yolk * 3, 0, 0.9))

    across = body.ventral / np.maximum(body.half_width, 1e-6)
    trunk = np.sqrt(np.clip(1 - across**2, 0, 1))
    fin = np.exp(-((np.abs(body.ventral) - body.half_width - 0.02) ** 2) / 0.008**2) * (body.progress > 0.3)
    light = light - 0.04 * fin * (body.progress < 1.12)

    fibres = _smooth_noise(rng, body.along / 0.035, body.ventral / 0.008)
    cells = _smooth_noise(rng, rows / 0.013, columns / 0.013)
    tissue = 0.5 + 0.06 * fibres + 0.06 * cells
    tissue += _somite_marks(varied, body, pattern, pixel)
    notochord = np.abs(body.ventral) / np.maximum(0.22 * body.half_width, pixel)
    seen = 0.07 * ramp(body.progress, -0.12, -0.05)
    tissue += seen * (np.exp(-(notochord**2)) - 0.8 * np.exp(-(((notochord - 1.3) / 0.4) ** 2)))
    light = cover(light, tissue, np.clip(trunk * 2.5, 0, 1))
    light = cover(light, *_eye(midline, rows, columns))

    thickness = 0.6 * trunk * body.half_width / 0.08 + yolk
    return light + _relief(rng, thickness, pixel)


def _somite_marks(varied: Varied, body: BodyCoordinates, pattern: SomitePattern, pixel: float) -> np.ndarray:
    """Dark clefts between somites and a random tone for each, (H, W); sometimes fainter towards one end."""
    after = np.clip(np.searchsorted(pattern.boundaries, pattern.chevron), 1, N_SOMITES)
    to_previous = np.abs(pattern.chevron - pattern.boundaries[after - 1])
    to_next = np.abs(pattern.chevron - pattern.boundaries[after])
    darkness = varied.uniform(0.55, 1.0, N_SOMITES + 1)
    nearest = np.where(to_previous < to_next, after - 1, after)
    distance = np.minimum(to_previous, to_next)
    cleft = darkness[nearest] * np.exp(-((distance / max(0.0055, 0.6 * pixel)) ** 2))
    tones = varied.rng.normal(0, 0.02, N_SOMITES + 2)
    number = np.searchsorted(pattern.boundaries, pattern.chevron, side="right")
    return (tones[number] * (pattern.labels > 0) - 0.24 * cleft) * _visibility(varied, body.progress)


def _visibility(varied: Varied, progress: np.ndarray) -> np.ndarray:
    """Contrast in 0.3..1 that fades towards the head, the tail, or neither."""
    often = 0.5 * varied.variety
    fading = varied.rng.choice(["head", "tail", "neither"], p=[0.4 * often, 0.6 * often, 1 - often])
    weakest, length = varied.uniform(0.3, 0.7), varied.uniform(0.15, 0.4)
    if fading == "neither":
        return np.ones_like(progress)
    from_end = progress if fading == "head" else 1 - progress
    return weakest + (1 - weakest) * ramp(from_end, 0, length)


def _yolk_thickness(
    varied: Varied, midline: Midline, body: BodyCoordinates, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """The yolk ball under the front of the trunk and its extension along the belly, (H, W) in 0..1."""
    radius = varied.uniform(0.15, 0.175)
    row, column, heading = midline.at(varied.uniform(0.06, 0.09) * midline.somites_length)
    inward = radius + 0.04
    down = rows - row - inward * np.cos(heading)
    right = columns - column + inward * np.sin(heading)
    squeeze = varied.uniform(0.85, 1.1)
    ball = np.sqrt(np.clip(1 - (down * squeeze) ** 2 / radius**2 - (right / squeeze) ** 2 / radius**2, 0, 1))
    ends = varied.uniform(0.45, 0.58)
    tube_width = 0.03 * (1 - ramp(body.progress, ends - 0.25, ends)) * ramp(body.progress, 0.05, 0.15)
    across = (body.ventral - body.half_width - 0.3 * tube_width) / np.maximum(tube_width, 1e-6)
    return np.maximum(ball, 0.5 * np.sqrt(np.clip(1 - across**2, 0, 1)))


def _eye(midline: Midline, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tone and opacity of the eye, (H, W) each: a ring with a brighter lens."""
    row, column, _ = midline.at(-0.19 * midline.somites_length)
    distance = np.hypot(rows - row, columns - column) / 0.04
    return 0.36 + 0.2 * np.exp(-((distance / 0.45) ** 4)), 0.8 * (1 - ramp(distance, 0.8, 1.05))


def _relief(rng: np.random.Generator, thickness: np.ndarray, pixel: float) -> np.ndarray:
    """Shading of slopes that face one side, as under oblique illumination, (H, W)."""
    towards = np.deg2rad(rng.uniform(20, 70))
    soft = _blur(thickness, 0.006 / pixel)
    down, right = np.gradient(soft, pixel)
    return np.clip(0.006 * (np.sin(towards) * down + np.cos(towards) * right), -0.15, 0.15)


def _photograph(rng: np.random.Generator, light: np.ndarray, body: BodyCoordinates, unit: int) -> np.ndarray:
    """Focus, illumination, exposure and photon noise; (H, W) uint8."""
    rows, columns = np.arange(light.shape[0])[:, None] / unit, np.arange(light.shape[1]) / unit
    sharp = _blur(light, rng.uniform(0.6, 1.1) * unit / 256)
    soft = _blur(sharp, 2.2 * unit / 256)
    # The body is not flat: one end may leave the focal plane.
    defocus = np.clip(rng.uniform(-0.5, 0.5) + rng.uniform(-1, 1) * (body.progress - 0.5), 0, 0.85)
    picture = cover(sharp, soft, defocus)
    lamp = 1 + 0.12 * _smooth_noise(rng, rows / 0.6, columns / 0.6)
    contrast, brightness = rng.uniform(0.7, 1.25), rng.uniform(0.38, 0.6)
    picture = (brightness + contrast * (picture - 0.5)) * lamp
    photons = rng.uniform(400, 1200)
    picture = picture + rng.normal(size=picture.shape) * np.sqrt(np.clip(picture, 0.02, 1) / photons)
    return np.rint(255 * np.clip(picture, 0, 1)).astype(np.uint8)


def cover(below: np.ndarray, above: np.ndarray, opacity: np.ndarray) -> np.ndarray:
    return below + opacity * (above - below)


def ramp(values: np.ndarray, start: float, stop: float) -> np.ndarray:
    """0 before start, 1 after stop, smooth between."""
    fraction = np.clip((values - start) / (stop - start), 0, 1)
    return fraction * fraction * (3 - 2 * fraction)


def _smooth_noise(rng: np.random.Generator, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Random values at whole coordinates, with smooth interpolation between them; they repeat in tiles of 64 x 64.

    rows, columns: coordinates that broadcast to (H, W)
    """
    period = 64
    tile = rng.uniform(-1, 1, (period, period))
    row_floor, column_floor = np.floor(rows), np.floor(columns)
    down, right = ramp(rows - row_floor, 0, 1), ramp(columns - column_floor, 0, 1)
    top, left = row_floor.astype(np.intp) % period, column_floor.astype(np.intp) % period
    bottom, far = (top + 1) % period, (left + 1) % period
    upper = tile[top, left] * (1 - right) + tile[top, far] * right
    lower = tile[bottom, left] * (1 - right) + tile[bottom, far] * right
    return upper * (1 - down) + lower * down


def _blur(image: np.ndarray, sigma: float) -> np.ndarray:
    """Gaussian blur of an (H, W) image, edges repeated."""
    radius = max(1, int(np.ceil(2.5 * sigma)))
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / max(sigma, 1e-3)) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):
        padding = [(radius, radius) if a == axis else (0, 0) for a in (0, 1)]
        padded = np.pad(image, padding, mode="edge")
        length = image.shape[axis]
        image = sum(w * np.take(padded, range(k, k + length), axis) for k, w in enumerate(weights))
    return image
