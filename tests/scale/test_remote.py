"""Images and results on other machines: S3 through moto's server, web addresses through a small one that also fails."""

import gc
import os
import warnings

import numpy as np
import pytest
import tifffile
import zarr

import hedgerow as hr
from hedgerow.errors import HedgerowError, InputError
from hedgerow.images import remote
from hedgerow.images.reading import open_image, opened
from hedgerow.scale import ome_zarr_out
from hedgerow.scale.large_results import results_for
from hedgerow.scale.markers import Markers
from hedgerow.scale.shards import ShardGrid
from helpers.large import picture, write_ome_zarr, write_zarr
from helpers.servers import flaky, s3, web

pytest.importorskip("aiohttp")
# s3fs leaves connections open, and Zarr leaves coroutines unfinished when another one failed.
pytestmark = pytest.mark.filterwarnings("ignore:[Uu]nclosed:ResourceWarning", "ignore:coroutine:RuntimeWarning")

# Other requests of a write that failed are given up by zarr, which its coroutines may tell when they are collected.
UNFINISHED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)


@pytest.fixture
def bucket(monkeypatch):
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server", reason="moto's server is not installed")
    import s3fs

    with s3(monkeypatch) as name:
        s3fs.S3FileSystem.clear_instance_cache()
        yield f"s3://{name}"
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_to_the_next_tests():
    """Garbage that is collected here raises no warning in another test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ome_zarr_out.array_of.cache_clear()
        opened.cache_clear()
        gc.collect()


class Stopped(Exception):
    """As if the process had been killed."""


def test_from_s3_to_s3(bucket, stack, monkeypatch):
    image = picture()
    array = zarr.create_array(
        remote.store_of(f"{bucket}/image.zarr"), shape=image.shape, dtype="uint8", chunks=(64, 64)
    )
    array[...] = image
    with monkeypatch.context() as patch:
        set_done = Markers.set_done

        def stop(self, shard):
            if shard == "0-1-1":
                raise Stopped
            set_done(self, shard)

        patch.setattr(Markers, "set_done", stop)
        with pytest.raises(Stopped):
            hr.predict_large(stack, f"{bucket}/image.zarr", f"{bucket}/a.ome.zarr", shard=64)
    with pytest.raises(InputError, match="is not finished"):
        open_image(f"{bucket}/a.ome.zarr")
    found = hr.predict_large(stack, f"{bucket}/image.zarr", f"{bucket}/a.ome.zarr", shard=64)
    assert found.n_resumed == 4
    result = open_image(f"{bucket}/a.ome.zarr")
    np.testing.assert_array_equal(result.read(result.whole)[0], stack.predict(image))
    with pytest.raises(InputError, match="would be overwritten; choose another place, or add --overwrite"):
        hr.predict_large(stack, f"{bucket}/image.zarr", f"{bucket}/a.ome.zarr", shard=64)
    system, inside = remote.file_system(f"{bucket}/a.ome.zarr")
    system.invalidate_cache()
    assert not any("hedgerow" in name for name in system.find(inside))


@UNFINISHED
def test_a_bucket_that_answers_errors_now_and_then(bucket, stack, monkeypatch):
    """Requests that fail before or after the bucket has carried them out are repeated, and no pixel is wrong."""
    image, never = picture((100, 120)), 10**9
    with flaky(os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"), never) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # otherwise it would wait for seconds
        place = remote.store_of(f"{bucket}/flaky.zarr")
        zarr.create_array(place, shape=image.shape, dtype="uint8", chunks=(64, 64))[...] = image
        server.fails_every = 17
        hr.predict_large(stack, f"{bucket}/flaky.zarr", f"{bucket}/b.ome.zarr", shard=64)
        assert server.n_failed > 2
        server.fails_every = never
        result = open_image(f"{bucket}/b.ome.zarr")
        np.testing.assert_array_equal(result.read(result.whole)[0], stack.predict(image))
    gc.collect()  # here, and not in another test


def test_creating_a_result_again_after_its_answer_was_lost(bucket, stack):
    result = results_for(stack, f"{bucket}/again.ome.zarr", ("labels",), "float32", "")[0]
    for _ in range(2):
        ome_zarr_out.create(result, ShardGrid((100, 120), 512))
    assert ome_zarr_out.array_of(result, 0).shape == (100, 120)


def test_tiff_and_npy_from_s3(bucket, tmp_path):
    image = picture()
    tifffile.imwrite(tmp_path / "a.tif", image, tile=(64, 64), compression="zlib", metadata=None)
    np.save(tmp_path / "a.npy", image)
    system, inside = remote.file_system(bucket)
    for name in ("a.tif", "a.npy"):
        system.put(str(tmp_path / name), f"{inside}/{name}")
        found = open_image(f"{bucket}/{name}")
        np.testing.assert_array_equal(found.read(found.whole)[0], image)


def test_from_the_web(tmp_path, stack):
    image = picture()
    write_ome_zarr(tmp_path / "image.ome.zarr", [image])
    np.save(tmp_path / "a.npy", image)
    with web(tmp_path) as server:
        hr.predict_large(stack, f"{server.address}/image.ome.zarr", tmp_path / "a.ome.zarr", shard=64)
        found = open_image(f"{server.address}/a.npy")
        np.testing.assert_array_equal(found.read(found.whole)[0], image)
    np.testing.assert_array_equal(hr.read_image(tmp_path / "a.ome.zarr"), stack.predict(image))


@UNFINISHED
def test_a_server_that_fails_now_and_then_is_asked_again(tmp_path, stack):
    image = picture()
    write_ome_zarr(tmp_path / "image.ome.zarr", [image])
    with web(tmp_path, fails_every=17) as server:
        hr.predict_large(stack, f"{server.address}/image.ome.zarr", tmp_path / "a.ome.zarr", shard=64)
        assert server.n_failed > 1
    np.testing.assert_array_equal(hr.read_image(tmp_path / "a.ome.zarr"), stack.predict(image))


def test_a_server_that_always_fails_is_one_sentence(tmp_path, stack):
    write_ome_zarr(tmp_path / "image.ome.zarr", [picture()])
    with web(tmp_path) as server:
        image = open_image(f"{server.address}/image.ome.zarr")
        server.fails_every = 1
        with pytest.raises(InputError, match=r"in chunk 0/c/0/0: .*503.*6 times in a row; try again later\."):
            image.read(image.whole)


def test_what_is_not_there_is_not_asked_for_again(tmp_path):
    with web(tmp_path) as server, pytest.raises(InputError, match="cannot read"):
        open_image(f"{server.address}/nothing.ome.zarr")
    assert server.n_asked < 12


def test_missing_keys_are_told_at_once():
    asked = []

    class NoCredentialsError(Exception):
        pass

    def work():
        asked.append(1)
        raise NoCredentialsError("Unable to locate credentials")

    with pytest.raises(InputError, match=r"Unable to locate credentials; set AWS_ACCESS_KEY_ID"):
        remote.with_retries(work, "cannot read s3://bucket/image.zarr")
    assert len(asked) == 1


def test_addresses_that_cannot_be():
    with pytest.raises(InputError, match=r"addresses must begin with s3://, http://, https://, not ftp://"):
        open_image("ftp://somewhere/image.ome.zarr")
    with pytest.raises(InputError, match=r"only .* can be read from another machine"):
        open_image("https://somewhere/image.png")


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(HedgerowError, match=r"s3:// needs s3fs, .* '\.\[cloud\]'"):
        open_image("s3://bucket/image.ome.zarr")


def test_results_elsewhere_are_ome_zarr(tmp_path, stack):
    path = write_zarr(tmp_path / "image.zarr", picture())
    with pytest.raises(InputError, match=r"only OME-Zarr can be written there"):
        hr.predict_large(stack, path, "s3://bucket/a.ome.tif")
    with pytest.raises(InputError, match=r"results cannot be written to web addresses"):
        hr.predict_large(stack, path, "https://somewhere/a.ome.zarr")
