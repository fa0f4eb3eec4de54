"""Arrays and files for tests: made, written, listed and compared."""

import numpy as np
import tifffile
from PIL import Image

from hedgerow.images.reading import read_input


def random_array(shape, dtype, seed=0):
    values = np.random.default_rng(seed).random(shape)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return values > 0.5
    return values.astype(dtype) if dtype.kind == "f" else (values * min(np.iinfo(dtype).max, 2**31)).astype(dtype)


def assert_same(result, expected):
    """Equal in values and number type."""
    assert result.dtype == expected.dtype, f"{result.dtype} is not {expected.dtype}"
    np.testing.assert_array_equal(result, expected)


def write(path, array, **options):
    """An array (or an image of Pillow) as a file of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, array, **options)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, array, **({"photometric": "minisblack"} | options))
    else:
        image = array if isinstance(array, Image.Image) else Image.fromarray(array)
        image.save(path, **options)
    return path


def read_channels(path, pages=None):
    """A user's own channels, (F,H,W)."""
    return read_input(path, "planes", pages)


def touch(*paths):
    """Files that are there, whatever they hold."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def listing(folder):
    """Every file below a folder with its content."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unchanged(folder, before):
    """No output, no checkpoint, nothing half-written, and every input as it was when it was listed."""
    now = listing(folder)
    differing = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    assert not differing, differing
