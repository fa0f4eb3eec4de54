"""Levels of an image, in memory or in a file."""

import numpy as np
import pytest

from hedgerow.errors import InputError
from hedgerow.images.regions import Region
from hedgerow.paint import pyramid
from hedgerow.paint.pyramid import Pyramid, level_size, n_levels
from helpers.refusals import assert_one_sentence

resource = pytest.importorskip("resource")  # not on Windows


def test_levels_until_one_tile_holds_the_image():
    assert [n_levels((side, 9)) for side in (1, 256, 257, 512, 1024, 20_000)] == [1, 1, 2, 2, 3, 8]
    assert level_size((1025, 7), 2) == (257, 2)


def test_a_large_image_lies_in_a_file(project, monkeypatch):
    usual = Pyramid(project.images[0])
    monkeypatch.setattr(pyramid, "MAX_MEMORY_BYTES", 1000)
    large = Pyramid(project.images[0])
    assert large.nbytes == 0
    for level in range(large.n_levels):
        region = Region(0, *large.size(level)[:1], 0, large.size(level)[1])
        assert np.array_equal(large.planes(level, region), usual.planes(level, region))


def test_a_disk_without_room_for_the_levels_is_told(project, monkeypatch):
    """The space is reserved at once: if the disk filled up later, writing to the mapped file would kill the program."""
    monkeypatch.setattr(pyramid, "MAX_MEMORY_BYTES", 1000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(InputError) as problem:
            Pyramid(project.images[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_one_sentence(problem, "the tiles of a large image need", "File too large", "TMPDIR")
