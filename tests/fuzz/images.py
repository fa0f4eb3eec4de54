"""Image files and Zarr folders: damaged bytes, and headers that promise something else than the file holds."""

import shutil
from contextlib import suppress
from functools import partial

import numpy as np

from fuzz import headers
from fuzz.damage import damaged
from fuzz.outcomes import attempted, require
from fuzz.pictures import write_all
from fuzz.values import pick
from hedgerow.errors import HedgerowError
from hedgerow.images.array_checks import to_labels, to_planes
from hedgerow.images.label_files import read_labels
from hedgerow.images.reading import read_image
from helpers.files import read_channels

MOST = 2**28  # bytes of an image; the workers allow 4 megapixels


class Images:
    """Makes and uses image files; bases: paths of whole ones."""

    name = "images"

    def __init__(self, folder):
        self.bases = write_all(folder / "pictures")
        for path in self.bases:  # which also loads what the worker needs, before its memory is limited
            with suppress(HedgerowError):
                self.use(path)

    def write(self, rng, folder):
        """The file of a case, and what was done to it."""
        base = pick(rng, self.bases)
        path = folder / base.name
        if base.is_dir():
            shutil.copytree(base, path)
            return path, f"{base.name}: {_change_folder(path, rng)}"
        if base.suffix == ".tif" and rng.random() < 0.15:
            content, done = headers.described_tiff(rng)
        elif rng.random() < 0.6:
            content, done = headers.BY_ENDING[base.suffix](base.read_bytes(), rng)
        else:
            content, done = damaged(base.read_bytes(), rng)
        path.write_bytes(content)
        return path, f"{base.name}: {done}"

    def use(self, path):
        """Read as an image, as channels and as labels."""
        attempted(*whole_reads(path))


def whole_reads(path):
    """Ways to read a file, each of which returns an array that has been checked."""
    ways = ((read_image, "picture"), (read_channels, "planes"), (read_labels, None))
    return [partial(_read, path, *way) for way in ways]


def read_stack(path):
    """(C,H,W) of all pages."""
    return to_planes(read_image(path, "all"))


def _read(path, read, layout):
    array = read(path)
    _check_array(array, layout)
    found = to_labels(array) if layout is None else to_planes(array, layout=layout)
    require(found.size > 0 and bool(np.isfinite(found).all()), f"{read.__name__} gave unusable values")
    return found


def _check_array(array, layout):
    require(isinstance(array, np.ndarray) and array.nbytes <= MOST, "an array of absurd size")
    shapes = {"picture": (2, 3), "planes": (3,), None: (2,)}[layout]
    # Whatever an array file holds is passed on as channels, and refused later if it has other axes.
    require(array.ndim in shapes or layout == "planes", f"an image of shape {array.shape}")
    require(array.dtype.isnative or layout == "planes", f"an image of type {array.dtype}")


def _change_folder(path, rng):
    """Change, remove or add a file of a Zarr folder."""
    file = pick(rng, sorted(item for item in path.rglob("*") if item.is_file()))
    inside = file.relative_to(path)
    kind = rng.random()
    if kind < 0.1:
        file.unlink()
        return f"no {inside}"
    if kind < 0.15:
        file.unlink()
        file.mkdir()
        return f"{inside} is a folder"
    tables = [item for item in path.rglob("*") if item.name in ("zarr.json", ".zarray", ".zattrs")]
    if kind < 0.7:
        file = pick(rng, sorted(tables))
        content, done = headers.table(file.read_bytes(), rng)
    else:
        content, done = damaged(file.read_bytes(), rng)
    file.write_bytes(content)
    return f"{file.relative_to(path)}: {done}"
