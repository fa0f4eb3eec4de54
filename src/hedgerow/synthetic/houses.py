"""House fronts in colour, drawn like photographs.

Every picture has its own light, colours, grain and arrangement; walls are bricks or plaster, windows reflect the sky,
and plants can hide part of the house.
"""

from collections.abc import Iterator

import numpy as np

FACADE_NAMES = ("wall", "window", "door", "roof", "sky", "vegetation", "street")
FACADE_COLOURS = (
    (222, 184, 135), (65, 105, 225), (139, 69, 19), (178, 34, 34), (135, 206, 235), (34, 139, 34), (128, 128, 128)
)  # fmt: skip
WALL, WINDOW, DOOR, ROOF, SKY, VEGETATION, STREET = range(len(FACADE_NAMES))


def draw_facade(rng: np.random.Generator, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A picture (H,W,3) uint8 and its labels (H,W) uint8, numbers in FACADE_NAMES."""
    rows, columns = np.mgrid[:height, :width].astype(np.float64)
    picture, label = np.empty((height, width, 3)), np.full((height, width), SKY, np.uint8)
    clouds = _clouds(rng, height, width, 40)
    low = rows[..., None] / height
    picture[:] = (1 - low) * (110, 150, 205) + low * (190, 205, 220) + 45 * np.clip(clouds, 0, 1)[..., None]

    left, right = width * rng.uniform(0.02, 0.12), width * rng.uniform(0.88, 0.98)
    eaves, ground = height * rng.uniform(0.16, 0.26), height * rng.uniform(0.84, 0.92)
    _paint(picture, label, rows >= ground, STREET, (105, 103, 100) + 10 * _clouds(rng, height, width, 12)[..., None])
    gable = eaves - height * rng.uniform(0.08, 0.14)
    slope = np.abs(columns - (left + right) / 2) / ((right - left) / 2)
    is_roof = (rows < eaves) & (rows >= gable + (eaves - gable) * np.clip(slope * 1.4 - 0.4, 0, 1)) & (slope <= 1)
    tiles = 14 * (np.sin(rows * 1.9) > 0.2)[..., None]
    _paint(picture, label, is_roof, ROOF, np.array(ROOFS[rng.integers(len(ROOFS))]) - tiles)

    is_wall = (rows >= eaves) & (rows < ground) & (columns >= left) & (columns < right)
    _paint(picture, label, is_wall, WALL, np.array(WALLS[rng.integers(len(WALLS))]) + _masonry(rng, rows, columns))
    for kind, top, bottom, first, last in _openings(rng, eaves, ground, left, right):
        inside = (rows >= top) & (rows < bottom) & (columns >= first) & (columns < last)
        if kind == DOOR:
            panels = 12 * ((columns - first) % ((last - first) / 2) < 1.5)[..., None]
            _paint(picture, label, inside, DOOR, np.array(DOORS[rng.integers(len(DOORS))]) - panels)
            continue
        # Glass shows the sky or the dark room; the frame belongs to the window, as in labels drawn by hand.
        glass = (60, 70, 85) + (70 * rng.random() * (1 - (rows - top) / (bottom - top)) + 25 * clouds)[..., None]
        _paint(picture, label, inside, WINDOW, glass)
        across = np.minimum((columns - first) % ((last - first) / 2), last - 1 - columns)
        frame = inside & ((across < 1.5) | (np.abs(rows - (top + bottom) / 2) < 1) | (rows < top + 1.5))
        _paint(picture, label, frame, WINDOW, np.array([225, 222, 215]))

    leaves = _clouds(rng, height, width, 3)
    for _ in range(rng.integers(2, 5)):
        where, wide = width * rng.random(), width * rng.uniform(0.04, 0.12)
        tall = height * rng.uniform(0.08, 0.4)
        crown = ((columns - where) / wide) ** 2 + ((rows - ground + tall / 2) / (tall / 2)) ** 2
        green = np.array([55, 95, 45]) + rng.uniform(-12, 25, 3) + 38 * leaves[..., None]
        _paint(picture, label, crown + 0.25 * leaves < 1, VEGETATION, green)

    light = 1 + 0.25 * _clouds(rng, height, width, 90)
    picture *= (rng.uniform(0.75, 1.15) * rng.uniform(0.94, 1.06, 3)) * light[..., None]
    picture += rng.normal(0, 6, picture.shape)
    return np.clip(picture, 0, 255).astype(np.uint8), label


WALLS = ((176, 112, 88), (205, 188, 150), (196, 190, 182), (150, 96, 74), (216, 205, 188))
ROOFS = ((140, 72, 56), (92, 90, 96), (120, 96, 80))
DOORS = ((96, 60, 40), (40, 76, 62), (120, 34, 34), (66, 66, 72))


def _paint(picture: np.ndarray, label: np.ndarray, where: np.ndarray, kind: int, colour: np.ndarray) -> None:
    picture[where] = np.broadcast_to(colour, picture.shape)[where]
    label[where] = kind


def _openings(
    rng: np.random.Generator, eaves: float, ground: float, left: float, right: float
) -> Iterator[tuple[int, float, float, float, float]]:
    """The kind, top, bottom, left and right of all windows and of one door, storey by storey."""
    n_storeys, n_axes = rng.integers(2, 5), rng.integers(3, 7)
    storey, axis, entrance = (ground - eaves) / n_storeys, (right - left) / n_axes, rng.integers(n_axes)
    tall, wide, sill = rng.uniform(0.5, 0.66), rng.uniform(0.34, 0.56), rng.uniform(0.16, 0.22)
    for s in range(n_storeys):
        for a in range(n_axes):
            top, middle = eaves + (s + sill) * storey, left + (a + 0.5) * axis
            if s + 1 == n_storeys and a == entrance:
                yield DOOR, top, ground, middle - 0.3 * axis, middle + 0.3 * axis
            else:
                yield WINDOW, top, top + tall * storey, middle - wide * axis / 2, middle + wide * axis / 2


def _masonry(rng: np.random.Generator, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(H,W,1): the values that bricks or plaster add to the colour of a wall."""
    height, width = rows.shape
    stains = 12 * _clouds(rng, height, width, 25)
    if rng.random() < 0.5:
        return (stains + 6 * _clouds(rng, height, width, 2))[..., None]
    course = rows // 5
    joint = (rows % 5 < 1) | ((columns + 5 * (course % 2)) % 10 < 1)
    return (stains + np.where(joint, 22, 0) + 8 * np.sin(37 * course + 11 * (columns // 10)))[..., None]


def _clouds(rng: np.random.Generator, height: int, width: int, grain: int) -> np.ndarray:
    """(H,W) smooth noise about 0, with patches of about `grain` pixels."""
    coarse = rng.normal(0, 0.5, (height // grain + 3, width // grain + 3))
    row, column = np.arange(height) / grain, np.arange(width) / grain
    i, k = row.astype(int), column.astype(int)
    down, across = (row - i)[:, None], (column - k)[None]
    top = coarse[i][:, k] * (1 - across) + coarse[i][:, k + 1] * across
    return top * (1 - down) + (coarse[i + 1][:, k] * (1 - across) + coarse[i + 1][:, k + 1] * across) * down
