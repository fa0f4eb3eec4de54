"""Levels of an image, in memory or in a file."""

import numpy as np

from hedgerow.images.regions import Region
from hedgerow.paint.pyramid import Pyramid, level_size, n_levels


def test_levels_until_one_tile_holds_the_image():
    assert [n_levels((side, 9)) for side in (1, 256, 257, 512, 1024, 20_000)] == [1, 1, 2, 2, 3, 8]
    assert level_size((1025, 7), 2) == (257, 2)


def test_a_large_image_lies_in_a_file(project, monkeypatch):
    from hedgerow.paint import pyramid

    usual = Pyramid(project.images[0])
    monkeypatch.setattr(pyramid, "MAX_MEMORY_BYTES", 1000)
    large = Pyramid(project.images[0])
    assert large.nbytes == 0
    for level in range(large.n_levels):
        region = Region(0, *large.size(level)[:1], 0, large.size(level)[1])
        assert np.array_equal(large.planes(level, region), usual.planes(level, region))
