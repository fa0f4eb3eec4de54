"""Chunks of a Zarr that decompress to more than they declare, and arrays that cannot be as they say."""

import asyncio
import json
import os
import tracemalloc

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype

from hedgerow.images.reading import open_image, read_image
from hedgerow.images.zarr_reading import BOUNDED, MOST_VALUES, decompressed, open_local
from hedgerow.scale.costs import refuse_endless
from helpers.files import random_array
from helpers.refusals import assert_refused_cheaply

CODECS = {
    "blosc": numcodecs.Blosc(),
    "bz2": numcodecs.BZ2(),
    "gzip": numcodecs.GZip(),
    "lz4": numcodecs.LZ4(),
    "lzma": numcodecs.LZMA(),
    "zlib": numcodecs.Zlib(),
    "zstd": numcodecs.Zstd(),
}
LARGE = 50_000_000  # bytes, of which a chunk of 32 x 32 declares 1,024
IMAGE = random_array((40, 50), "uint8")


def read_lazily(path):
    image = open_image(path)
    refuse_endless(image, image.whole)
    return image.read(image.whole)


READS = [read_image, read_lazily]


def refused(read, path, *words):
    """In one sentence, and without the memory that the image asks for."""
    # Half of it may be the readers, if these are the first images that a process reads.
    assert_refused_cheaply(read, path, 0.8 * LARGE, *words)


def edit(path, change):
    """Change the description of an array."""
    name = "zarr.json" if (path / "zarr.json").exists() else ".zarray"
    found = json.loads((path / name).read_text())
    change(found)
    (path / name).write_text(json.dumps(found))


def test_every_codec_is_tried_here():
    assert set(CODECS) == set(BOUNDED)


@pytest.mark.parametrize("name", CODECS)
def test_no_more_is_decompressed_than_was_declared(name):
    content, bomb = IMAGE.tobytes(), bytes(CODECS[name].encode(bytes(LARGE)))
    encoded = bytes(CODECS[name].encode(content))
    for most in (len(content), 10 * len(content)):
        assert decompressed(name, encoded, most) == content
    with pytest.raises(ValueError, match="it decompresses to more than"):
        decompressed(name, encoded, len(content) - 1)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"it decompresses to more than 1\.00 MB, but less was declared"):
        decompressed(name, bomb, 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < LARGE / 3  # the dictionary of LZMA alone has 8 MB


@pytest.mark.parametrize("name", ["bz2", "gzip", "lzma", "zlib"])
def test_streams_that_follow_each_other_count_together_and_must_be_whole(name):
    half = bytes(CODECS[name].encode(bytes(500)))
    assert decompressed(name, 2 * half, 1000) == bytes(1000)
    with pytest.raises(ValueError, match="more than"):
        decompressed(name, 2 * half, 999)
    with pytest.raises(ValueError, match="are incomplete"):
        decompressed(name, half[:-5], 1000)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("name", ["zstd", "bz2", "lzma"])
def test_a_small_chunk_that_decompresses_to_a_large_one(tmp_path, read, name):
    """Small enough as a file that only its content tells."""
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=IMAGE, chunks=(32, 32), zarr_format=2, compressors=CODECS[name])
    assert read(path).size == IMAGE.size
    (path / "1.0").write_bytes(CODECS[name].encode(bytes(LARGE)))
    refused(read, path, "more than", "less was declared")


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("shards", [None, (4096, 4096)])
def test_the_same_in_version_3_and_inside_a_shard(tmp_path, read, shards):
    """Written large, and then described as small."""
    path = tmp_path / "a.zarr"
    large = np.ones((4096, 4096), np.uint8)
    zarr.create_array(path, data=large, chunks=large.shape, shards=shards, compressors=zarr.codecs.ZstdCodec())

    def shrink(metadata):
        metadata["shape"] = metadata["chunk_grid"]["configuration"]["chunk_shape"] = [32, 32]
        if shards:
            metadata["codecs"][0]["configuration"]["chunk_shape"] = [32, 32]

    edit(path, shrink)
    refused(read, path, "more than", "less was declared")


@pytest.mark.parametrize("read", READS)
def test_a_chunk_that_holds_a_little_more(tmp_path, read):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=IMAGE, chunks=(40, 50), compressors=None)
    edit(path, lambda found: found.update(shape=[39, 50]))
    assert read(path).size == 39 * 50  # cut at the end, as the format has it
    edit(path, lambda found: found["chunk_grid"]["configuration"].update(chunk_shape=[39, 50]))
    refused(read, path)


@pytest.mark.parametrize("read", READS)
def test_a_file_larger_than_its_chunk_can_be_is_not_read(tmp_path, read):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=IMAGE, chunks=(32, 32), compressors=None)
    with open(path / "c" / "0" / "0", "r+b") as file:
        file.truncate(10 * LARGE)  # a hole, which takes no space
    refused(read, path, "c/0/0", "500.00 MB", "should have at most 67.")


@pytest.mark.parametrize("read", READS)
def test_metadata_larger_than_any_are_not_read(tmp_path, read, monkeypatch):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=IMAGE, chunks=(32, 32))
    with open(path / "zarr.json", "r+b") as file:
        file.truncate(20 * LARGE)
    refused(read, path, "zarr.json", "should have at most 67.11 MB")


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("item", ["[]", "{}", "1"])
def test_metadata_of_millions_of_values_are_not_parsed(tmp_path, read, version, item):
    """60 MB of empty lists, which is an allowed length, took 2 GB."""
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=IMAGE, chunks=(32, 32), zarr_format=version)
    name = "zarr.json" if version == 3 else ".zattrs"
    if version == 3:
        edit(path, lambda metadata: metadata["attributes"].update(more="here"))
        metadata = (path / name).read_text()
    else:
        metadata = '{"more": "here"}'
    (path / name).write_text(metadata.replace('"here"', "[" + f"{item}," * MOST_VALUES + "1]"))
    refused(read, path, name, "values, expected at most 5,000,000")


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("name", ["zarr.json", "c/0/0"])
@pytest.mark.skipif(not hasattr(os, "mkfifo") or not os.path.exists("/dev/zero"), reason="there are no such files")
def test_pipes_devices_and_links_to_them(tmp_path, read, name):
    zarr.create_array(tmp_path / "pipe", shape=(4, 4), dtype="u1", chunks=(4, 4))
    os.mkfifo(tmp_path / "fifo")
    for kind, target in (("a pipe (FIFO)", tmp_path / "fifo"), ("a device", "/dev/zero"), ("not there", "gone")):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.zarr"
        zarr.create_array(path, data=IMAGE, chunks=(32, 32))
        (path / name).unlink()
        (path / name).symlink_to(target)
        refused(read, path, path / name, kind)


@pytest.mark.parametrize("read", READS)
def test_arrays_that_cannot_be(tmp_path, read):
    def array(name, change, version=3, **options):
        zarr.create_array(tmp_path / name, data=IMAGE, chunks=(20, 10), zarr_format=version, **options)
        edit(tmp_path / name, change)
        return tmp_path / name

    refused(read, array("a.zarr", lambda metadata: metadata["chunk_grid"]["configuration"].update(chunk_shape=[0, 10])))
    refused(read, array("b.zarr", lambda metadata: metadata.update(chunks=[20, 0]), 2), "chunks of shape (20, 0)")
    long = {"chunk_shape": [8, 10**400]}
    path = array("c.zarr", lambda metadata: metadata["chunk_grid"]["configuration"].update(long))
    refused(read, path, "chunks of shape (8, 1000", "no file can hold")
    for length in (2**63 - 1, 2**63, 2**70, -5):
        refused(read, array(f"{length}.zarr", lambda metadata, n=length: metadata.update(shape=[n, n])))

    def crowded(metadata):
        metadata["shape"] = metadata["chunk_grid"]["configuration"]["chunk_shape"] = [20_000, 20_000]
        metadata["codecs"][0]["configuration"]["chunk_shape"] = [1, 1]

    path = array("shards.zarr", crowded, shards=(40, 50))
    refused(read, path, "400,000,000 chunks in each file", "larger chunks")


@pytest.mark.parametrize("read", READS)
def test_other_codecs_are_refused(tmp_path, read):
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=IMAGE, chunks=(20, 10), zarr_format=2, compressors=None)
    edit(path, lambda found: found.update(filters=[{"id": "base64"}]))
    refused(read, path, "it is compressed with 'base64', expected blosc, bz2, gzip,", "convert it")


def test_codecs_that_do_not_compress_are_read(tmp_path):
    filters = [numcodecs.Delta("u1"), numcodecs.Shuffle(1)]
    zarr.create_array(tmp_path / "a.zarr", data=IMAGE, chunks=(20, 10), zarr_format=2, filters=filters)
    codecs = {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))], "shards": (40, 50)}
    zarr.create_array(tmp_path / "b.zarr", data=IMAGE, chunks=(20, 10), **codecs)
    for name in ("a.zarr", "b.zarr"):
        np.testing.assert_array_equal(read_image(tmp_path / name), IMAGE)
        np.testing.assert_array_equal(read_lazily(tmp_path / name)[0], IMAGE)


def test_requests_of_a_failed_read_that_zarr_abandons_are_not_reported(tmp_path, caplog):
    """asyncio would report each with a traceback, beside the one sentence; it still reports anything else."""
    zarr.create_array(tmp_path / "a.zarr", shape=(4, 5), dtype="u1", chunks=(2, 5))
    store = open_local(tmp_path / "a.zarr").store

    async def read_and_abandon():
        await store.get("zarr.json", default_buffer_prototype())
        loop = asyncio.get_running_loop()
        for name in ("task", "future"):
            loop.call_exception_handler({"message": f"abandoned {name}", name: loop.create_future()})
        loop.call_exception_handler({"message": "anything else"})

    asyncio.run(read_and_abandon())
    assert [record.getMessage() for record in caplog.records] == ["anything else"]
