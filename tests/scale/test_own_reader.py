"""A reader from another package: one file and one line of registration, for whole images and large ones."""

import struct

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.images.pairing import find_files
from hedgerow.images.reading import READERS, Reader, open_image
from hedgerow.images.regions import Region
from hedgerow.images.remote import open_file
from hedgerow.images.stored import array_in_file
from helpers.large import picture


def open_raw(spec, files):
    """The format: height and width, then 8-bit pixels."""
    file = files.enter_context(open_file(spec.path))
    height, width = struct.unpack("<II", file.read(8))
    return array_in_file(spec.path, np.memmap(spec.path, np.uint8, "r", 8, (height, width)), "YX")


@pytest.fixture
def raw_file(tmp_path, monkeypatch):
    monkeypatch.setitem(READERS, ".raw", Reader(open_raw, by_region=True))
    (tmp_path / "image.raw").write_bytes(struct.pack("<II", 150, 190) + picture().tobytes())
    return tmp_path / "image.raw"


def test_it_is_read_whole_and_by_region(raw_file):
    assert find_files(raw_file.parent) == [raw_file]
    np.testing.assert_array_equal(hr.read_image(raw_file), picture())
    inside = Region(33, 140, 50, 171)
    np.testing.assert_array_equal(open_image(raw_file).read(inside)[0], inside.of(picture()))
    with pytest.raises(InputError, match=r"its ending is not one of .*, \.raw; convert the file"):
        hr.read_image(__file__)


def test_a_large_image_is_predicted_from_it(raw_file, tmp_path, stack):
    hr.predict_large(stack, raw_file, tmp_path / "labels.ome.zarr", shard=64)
    np.testing.assert_array_equal(hr.read_image(tmp_path / "labels.ome.zarr"), stack.predict(picture()))
