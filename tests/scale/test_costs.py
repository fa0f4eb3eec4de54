"""Images that would take years are refused by their metadata, before any of their parts is processed."""

import tracemalloc

import numpy as np
import pytest
import tifffile
import zarr

import hedgerow as hr
from hedgerow import jobs, memory
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.protocol import MAX_SUM_TILES, TILE_SIDE, sampled_tiles
from hedgerow.images import file_checks, zarr_files
from hedgerow.images.reading import open_image
from hedgerow.images.regions import Region
from hedgerow.scale import costs
from hedgerow.scale.shards import ShardGrid, cut
from helpers.files import random_array, write
from helpers.large import write_zarr
from helpers.refusals import assert_one_sentence

HUGE = 10**9
IMAGE = random_array((150, 190), "uint8")


def empty(path, side, chunk):
    """A Zarr without stored chunks."""
    zarr.create_array(path, shape=(side, side), dtype="u1", chunks=(chunk, chunk))
    return path


@pytest.fixture(autouse=True)
def _little_is_allocated():
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6


def refused(work, *words):
    with pytest.raises(InputError) as problem:
        work()
    assert_one_sentence(problem, *words)


def test_squares_are_made_on_request():
    tiles = Region(0, HUGE, 0, HUGE).tiles(512)
    assert len(tiles) == 1953125**2
    assert tiles[-1] == Region(HUGE - 512, HUGE, HUGE - 512, HUGE)
    part = Region(5, 27, 3, 40)
    listed = [
        Region(top, min(top + 8, 27), left, min(left + 8, 40)) for top in range(5, 27, 8) for left in range(3, 40, 8)
    ]
    assert list(part.tiles(8)) == listed
    assert part.tiles(8)[2:9:3] == listed[2:9:3]
    with pytest.raises(IndexError):
        part.tiles(8)[len(listed)]


def test_shards_and_tiles_are_generated():
    grid = ShardGrid((HUGE, HUGE), 2048)
    assert grid.n_shards > 3e11
    assert next(grid.shards(0)).region == Region(0, 2048, 0, 2048)
    for cell in (1, 64):
        assert next(cut(Region(0, HUGE, 0, HUGE), 512, cell)).top == 0


@pytest.mark.parametrize("sizes", [[(600, 700)], [(10, 10)] * 7, [(40_000, 30_000), (5, 5), (20_000, 9_000)]])
def test_the_same_squares_are_counted_as_when_they_were_listed(sizes):
    listed = [(i, tile) for i, size in enumerate(sizes) for tile in Region.whole(size).tiles(TILE_SIDE)]
    chosen = listed[:: -(-len(listed) // MAX_SUM_TILES)]
    assert sampled_tiles(sizes) == [[tile for k, tile in chosen if k == i] for i in range(len(sizes))]


def test_an_image_that_would_take_years(tmp_path, stack, model_file):
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    path, labels = (empty(tmp_path / folder / "a.zarr", HUGE, 1024) for folder in ("images", "labels"))
    words = ("1,000,000,000 x 1,000,000,000 pixels", "years", "limit of 1,000,000", costs.MEGAPIXELS)
    refused(lambda: hr.predict_large(stack, path, tmp_path / "out.ome.zarr"), *words)
    refused(lambda: jobs.evaluate(jobs.EvaluateRequest(model_file, path, labels)), *words)
    refused(lambda: jobs.train(jobs.TrainRequest(path, labels, tmp_path / "new.hedge")), *words)
    assert not (tmp_path / "out.ome.zarr").exists()


def test_a_part_of_it_is_predicted(tmp_path, stack):
    path = empty(tmp_path / "a.zarr", HUGE, 64)
    found = hr.predict_large(stack, path, tmp_path / "out.ome.zarr", region="999999900:1000000000,0:90")
    assert found.size == (100, 90)
    assert hr.read_image(tmp_path / "out.ome.zarr").shape == (100, 90)


def test_the_mask_counts_too(tmp_path, stack):
    image, mask = write_zarr(tmp_path / "a.zarr", IMAGE), empty(tmp_path / "mask.zarr", HUGE, 1024)
    refused(lambda: hr.predict_large(stack, image, tmp_path / "a.ome.zarr", mask=str(mask)), str(mask), "years")


@pytest.mark.parametrize("variable", [costs.MEGAPIXELS, file_checks.CHUNKS])
def test_the_limits_are_set_by_the_environment(tmp_path, stack, variable, monkeypatch):
    path = write_zarr(tmp_path / "a.zarr", IMAGE, chunks=(50, 50))  # 12 chunks, 0.0285 megapixels
    over, under = ("0.02", "0.03") if variable == costs.MEGAPIXELS else ("11", "12")
    monkeypatch.setenv(variable, over)
    refused(lambda: hr.predict_large(stack, path, tmp_path / "out.ome.zarr"), f"limit of {over}", variable)
    monkeypatch.setenv(variable, under)
    hr.predict_large(stack, path, tmp_path / "out.ome.zarr")
    monkeypatch.setenv(variable, "many")
    with pytest.raises(ConfigError) as problem:
        hr.predict_large(stack, path, tmp_path / "again.ome.zarr")
    assert_one_sentence(problem, variable, "'many'", "above 0")


def test_chunks_of_one_pixel(tmp_path, stack):
    path = empty(tmp_path / "a.zarr", 20_000, 1)
    words = ("400,000,000 chunks of 1 x 1 pixels", "limit of 50,000,000", "larger chunks", file_checks.CHUNKS)
    refused(lambda: hr.predict_large(stack, path, tmp_path / "out.ome.zarr"), *words)
    refused(lambda: hr.read_image(path), *words)


def test_chunks_of_all_channels_count(tmp_path):
    planes = random_array((3, 20, 30), "uint8")
    image = open_image(write_zarr(tmp_path / "a.zarr", planes, chunks=(1, 10, 10)), layout="planes")
    assert image.n_blocks(image.whole) == 3 * 2 * 3
    assert image.n_blocks(Region(9, 11, 0, 10)) == 3 * 2
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, tile=(64, 64), compression="zlib", metadata=None)
    assert open_image(tmp_path / "a.tif").n_blocks(Region(0, 150, 0, 190)) == 3 * 3
    lies_in_the_file = open_image(write(tmp_path / "a.npy", IMAGE))
    assert lies_in_the_file.n_blocks(lies_in_the_file.whole) == 0


def test_many_chunks_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    image = open_image(write_zarr(tmp_path / "a.zarr", IMAGE, chunks=(8, 8)))
    monkeypatch.setattr(zarr_files, "MAX_CHUNKS_AT_ONCE", 30)
    sizes, read = [], zarr.Array.__getitem__

    def counted(array, place):
        values = read(array, place)
        sizes.append(values.size)
        return values

    monkeypatch.setattr(zarr.Array, "__getitem__", counted)
    inside = Region(3, 150, 7, 181)
    np.testing.assert_array_equal(image.read(inside)[0], inside.of(IMAGE))
    assert sum(sizes) == 147 * 174
    assert max(sizes) <= 30 * 64


def test_blocks_larger_than_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    path = tmp_path / "a.zarr"
    zarr.create_array(path, shape=(4, 5), dtype="u1", chunks=(20_000, 20_000))
    refused(lambda: open_image(path).check_memory(), "chunks of 0.40 GB each", "1.00 GB of memory", "smaller chunks")


@pytest.mark.parametrize("tag", ["TileWidth", "TileLength"])
@pytest.mark.parametrize(("value", "words"), [(0, "tiles or strips have no pixels"), (2**31, "cannot read")])
def test_tiles_of_a_tiff_that_cannot_be(tmp_path, stack, tag, value, words):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, tile=(64, 64), compression="zlib", metadata=None)
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tiff.pages.first.tags[tag].overwrite(value, dtype="I")
    refused(lambda: hr.predict_large(stack, path, tmp_path / "out.ome.zarr"), words)


def test_a_tiff_that_declares_more_than_it_has(tmp_path, stack):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, tile=(64, 64), compression="zlib", metadata=None)
    with tifffile.TiffFile(path, mode="r+") as tiff:
        for name in ("ImageWidth", "ImageLength"):
            tiff.pages.first.tags[name].overwrite(2**32 - 1, dtype="I")
    refused(
        lambda: hr.predict_large(stack, path, tmp_path / "out.ome.zarr"),
        "the positions of only 9 of its",
        "save it again",
    )


def test_a_tile_longer_than_it_can_be(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, IMAGE, tile=(64, 64), compression="zlib", metadata=None)
    with open(path, "r+b") as file:
        file.truncate(10**9)  # a hole, which takes no space
    with tifffile.TiffFile(path, mode="r+") as tiff:
        counts = tiff.pages.first.tags["TileByteCounts"]
        counts.overwrite([9 * 10**8, *counts.value[1:]], dtype="I")
    image = open_image(path)
    refused(lambda: image.read(image.whole), "its tile 0", "900.00 MB", "at most 73.7 kB")
