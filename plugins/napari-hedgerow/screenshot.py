"""Make docs/napari.png: a few strokes on synthetic cells, segmented by the plugin in a napari window.

On a machine without a screen: xvfb-run -a -s "-screen 0 1600x1000x24" python screenshot.py ../../docs/napari.png
"""

import sys
import time
from collections.abc import Callable

import napari
import numpy as np
from qtpy.QtWidgets import QApplication
from scipy import ndimage

MAX_SECONDS = 300  # until there is a segmentation


def drawn_cells(size: int = 384, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Cells with dark walls and bright nuclei (H,W) float32, and the truth (H,W): 1 inside, 2 wall, 3 nucleus."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, size, (60, 2))
    for _ in range(3):  # cells of about the same size
        owner = nearest(points, size)[0]
        points = np.array(ndimage.center_of_mass(np.ones((size, size)), owner, range(len(points))))
    _, first, second = nearest(points, size)
    truth = np.ones((size, size), np.uint8)
    truth[first < 9] = 3
    truth[second - first < 4] = 2
    clean = np.array([0, 0.45, 0.12, 0.85], np.float32)[truth]
    texture = ndimage.gaussian_filter(rng.normal(size=truth.shape), 2) * 0.45
    return ndimage.gaussian_filter(clean + texture, 1.2) + rng.normal(size=truth.shape) * 0.06, truth


def nearest(points: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each pixel, the nearest point (H,W), its distance, and the distance of the second nearest."""
    rows, columns = np.mgrid[:size, :size]
    distance = np.hypot(rows - points[:, 0, None, None], columns - points[:, 1, None, None])
    ordered = np.partition(distance, 1, axis=0)
    return distance.argmin(axis=0), ordered[0], ordered[1]


def strokes(truth: np.ndarray, seed: int = 1) -> np.ndarray:
    """Short strokes (H,W) within each class, 0 elsewhere."""
    rng = np.random.default_rng(seed)
    painted = np.zeros_like(truth)
    for value in (1, 2, 3):
        places = np.argwhere(truth == value)
        places = places[(places > 30).all(axis=1) & (places < len(truth) - 30).all(axis=1)]
        for row, column in places[rng.integers(0, len(places), 9)]:
            part = np.s_[row - 2 : row + 3, column - 9 : column + 10]
            painted[part] = np.where(truth[part] == value, value, painted[part])
    return painted


def main(path: str) -> None:
    image, truth = drawn_cells()
    viewer = napari.Viewer(show=True)
    viewer.window.resize(1280, 800)
    viewer.add_image(image, name="cells")
    _, widget = viewer.window.add_plugin_dock_widget("napari-hedgerow", "Segment from strokes")
    widget.form.new.click()
    viewer.layers["cells paint"].data = strokes(truth)
    widget.form.live.click()
    wait(lambda: "cells segmentation" in viewer.layers and not widget.engine.is_busy)
    viewer.layers["cells paint"].opacity = 1.0
    viewer.layers["cells segmentation"].opacity = 0.35
    wait(lambda: widget.form.bar.isHidden())
    viewer.reset_view()
    end = time.monotonic() + 2
    wait(lambda: time.monotonic() > end)  # until the window is fully drawn
    viewer.window.screenshot(path, canvas_only=False, flash=False)
    viewer.close()


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + MAX_SECONDS
    while not until():
        if time.monotonic() > end:
            raise SystemExit("nothing was segmented; look for a notification in the window.")
        QApplication.processEvents()
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
