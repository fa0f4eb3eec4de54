"""Codes of tiles, and the memory that they take."""

import numpy as np
import pytest

from hedgerow.images.regions import Region
from hedgerow.paint.code_cache import CODE_TILE, CodeCache, EncodedRegion, MemoryCache, live_config, n_codes
from hedgerow.paint.segmenter import Segmenter
from helpers.paint import Listener, open_project
from helpers.paint import paint_strokes as paint


def test_blocks_are_parts_of_one_whole(project):
    codes = CodeCache(project, MemoryCache())
    features, edges = codes.bank_and_edges(0)
    height, width = project.images[0].size
    whole = features.compute(codes.pyramid(0).planes(0, Region(0, height, 0, width)))
    expected = EncodedRegion.of(np.ascontiguousarray(whole), edges).image()
    for place in ((0, 0), (1, 1)):
        top, left = place[0] * CODE_TILE, place[1] * CODE_TILE
        assert np.array_equal(codes.tile(0, 0, place).image(), expected[top : top + CODE_TILE, left : left + CODE_TILE])


@pytest.mark.parametrize("n_channels", [1, 2, 3, 5, 8, 20])
def test_the_bytes_of_a_pixel_are_known_in_advance(n_channels):
    config = live_config(n_channels)
    from hedgerow.features.bank import Bank

    assert Bank.from_images([np.zeros((n_channels, 9, 9), np.float32)], config).n_features == n_codes(n_channels)


def test_the_least_recently_used_goes_first():
    store, computed = MemoryCache(100), []

    def get(key, n_bytes=40):
        return store.get(key, lambda: (computed.append(key), np.zeros(n_bytes, np.uint8))[1])

    for key in ("a", "b", "a", "c", "a", "b"):
        get(key)
    assert computed == ["a", "b", "c", "b"]
    assert store.nbytes <= 100
    get("large", 500)  # the newest item stays, even if it is too large
    assert "large" in store
    assert store.nbytes == 500
    with pytest.raises(ZeroDivisionError):
        store.get("bad", lambda: 1 // 0)
    assert store.get("bad", lambda: np.zeros(1)).nbytes == 8


def test_codes_of_many_images_stay_within_the_memory(tmp_path):
    project = open_project(tmp_path, 6, (200, 220))
    store = MemoryCache(6 * 2**20)
    segmenter, listener = Segmenter(project, CodeCache(project, store)), Listener()
    paint(project, 0, ((0, 40, 30), (1, 60, 120)))
    for image in range(6):
        segmenter.whole(listener, image)
        assert store.nbytes <= store.max_bytes
    assert {one.image for one in listener.shown} == set(range(6))
    project.close()
