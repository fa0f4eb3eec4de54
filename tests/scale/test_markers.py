"""The record of an unfinished result."""

import json

import pytest

from hedgerow.errors import InputError
from hedgerow.scale.markers import RECORD, Markers
from helpers.refusals import assert_one_sentence


@pytest.mark.parametrize("content", ["[1]", '"text"', "3", "null", "{"])
def test_a_record_that_is_no_object_is_refused(tmp_path, content):
    markers = Markers(str(tmp_path / "result.ome.zarr"))
    markers.begin({"hedgerow": "0", "run": "a"})
    (tmp_path / "result.ome.zarr" / markers.folder.rpartition("/")[2] / RECORD).write_text(content)
    with pytest.raises(InputError) as problem:
        markers.read_record()
    assert_one_sentence(problem, markers.folder, "damaged", "remove")


def test_a_claim_is_no_record(tmp_path):
    markers = Markers(str(tmp_path / "result.ome.zarr"))
    assert markers.read_record() is None
    markers.claim()
    assert markers.read_record() is None
    markers.begin({"hedgerow": "0", "run": "a"})
    assert markers.read_record() == json.loads('{"hedgerow": "0", "run": "a"}')
