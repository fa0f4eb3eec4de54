"""Images that only context can tell apart, and settings with which training on them takes a moment."""

import numpy as np

import hedgerow as hr

SMALL = hr.StackConfig(
    drop_levels=False,
    n_levels=2,
    n_trees=4,
    sigmas=(0.7, 2.0),
    context=hr.ContextConfig(window=17, n_offsets=3),
    sampling=hr.SamplingConfig(step=1, fraction=0.5),
    augment=hr.AugmentConfig(copies=1),
)


def blobs(n_images=5, seed=0, shape=(40, 48), channels=0, dtype=np.uint8):
    """Bright squares with dark squares to their right: the class of a flat pixel depends on its surroundings."""
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for i in range(n_images):
        height, width = shape[0] + 3 * i, shape[1] - 2 * i
        image, label = np.full((height, width), 100.0), np.zeros((height, width), np.uint8)
        for _ in range(4):
            row, column = rng.integers(0, height - 8), rng.integers(0, width - 16)
            image[row : row + 8, column : column + 8] = 180
            image[row : row + 8, column + 8 : column + 16] = 140
            label[row : row + 8, column : column + 8] = 1
            label[row : row + 8, column + 8 : column + 16] = 2
        image = image + rng.normal(0, 5, image.shape)
        image = np.stack([image] * channels, axis=-1) if channels else image
        scale = {"uint8": 1, "uint16": 200, "float32": 1 / 255}[np.dtype(dtype).name]
        images.append((image * scale).astype(dtype))
        labels.append(label)
    return images, labels


def discs(shape, places):
    """(H,W) bool: discs of (row, column, radius)."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    inside = [(rows - row) ** 2 + (columns - column) ** 2 <= radius**2 for row, column, radius in places]
    return np.any(inside, axis=0)


def numbered_discs(shape, places):
    """(H,W) int32: the number of the last disc (row, column, radius) at each pixel, from 1; 0 where there is none."""
    numbers = np.zeros(shape, np.int32)
    for number, place in enumerate(places, 1):
        numbers[discs(shape, [place])] = number
    return numbers


QUICK = hr.StackConfig(n_levels=1, n_trees=6, features="bank")


def cells(n_images, size=(72, 96), seed=0):
    """Grey images of touching discs with noise, and their numbered objects."""
    rng = np.random.default_rng(seed)
    images, maps = [], []
    for _ in range(n_images):
        centres = [(row, column) for row in range(12, size[0], 18) for column in range(12, size[1], 16)]
        places = [(row + rng.integers(-1, 2), column + rng.integers(-1, 2), 8) for row, column in centres]
        numbers = numbered_discs(size, places)
        maps.append(numbers)
        images.append((100.0 * (numbers > 0) + 20 * rng.random(size)).astype(np.float32))
    return images, maps
