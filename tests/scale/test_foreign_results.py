"""A large prediction removes only results that Hedgerow made, wherever a run was stopped."""

import os

import pytest

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.scale import large_prediction, ome_zarr_out
from hedgerow.scale.markers import UNFINISHED, Markers
from helpers.files import listing
from helpers.large import picture, write_zarr
from helpers.refusals import assert_one_sentence

BOTH = {"what": ("labels", "confidence"), "shard": 64}


class Stopped(Exception):
    """As if the process had been killed."""


@pytest.fixture
def there(tmp_path, monkeypatch):
    """The name of an image of its own, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_zarr("image.zarr", picture())
    return "image.zarr"


def foreign(path):
    path.mkdir()
    (path / "notes.txt").write_text("by hand")
    return path


def stopping(patch, module, name):
    def stop(*given, **named):
        raise Stopped

    patch.setattr(module, name, stop)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_others_that_is_no_image_stays(there, stack, tmp_path, overwrite):
    foreign(tmp_path / "a.ome.zarr")
    before = listing(tmp_path)
    with pytest.raises(InputError) as problem:
        hr.predict_large(stack, there, "a.ome.zarr", shard=64, overwrite=overwrite)
    assert_one_sentence(problem, "a.ome.zarr", "Hedgerow did not")
    assert listing(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_others_that_is_named_like_the_work_of_a_tiff_stays(there, stack, tmp_path, overwrite):
    foreign(tmp_path / "a.ome.tif.hedgerow-unfinished.zarr")
    before = listing(tmp_path)
    with pytest.raises(InputError) as problem:
        hr.predict_large(stack, there, "a.ome.tif", shard=64, overwrite=overwrite)
    assert_one_sentence(problem, "a.ome.tif.hedgerow-unfinished.zarr", "move it away")
    assert listing(tmp_path) == before


def test_beside_an_unfinished_result_the_others_are_checked_too(there, stack, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        stopping(patch, Markers, "set_done")
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", shard=64)
    foreign(tmp_path / "a_confidence.ome.zarr")
    before = listing(tmp_path)
    with pytest.raises(InputError) as problem:
        hr.predict_large(stack, there, "a.ome.zarr", **BOTH)
    assert_one_sentence(problem, "a_confidence.ome.zarr", "Hedgerow did not")
    assert listing(tmp_path) == before


def test_a_tiff_of_others_that_came_while_a_run_was_stopped_stays(there, stack, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        stopping(patch, Markers, "set_done")
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.tif", shard=64)
    (tmp_path / "a.ome.tif").write_text("by hand")
    with pytest.raises(InputError, match=r"a\.ome\.tif would be overwritten"):
        hr.predict_large(stack, there, "a.ome.tif", shard=64)
    assert (tmp_path / "a.ome.tif").read_text() == "by hand"


@pytest.mark.parametrize("ending", ["ome.zarr", "ome.tif"])
@pytest.mark.parametrize("at", [(ome_zarr_out, "create"), (Markers, "begin"), (large_prediction, "run_shards")])
def test_what_a_run_left_that_was_killed_at_its_beginning_is_ours(there, stack, monkeypatch, tmp_path, ending, at):
    module, name = at
    with monkeypatch.context() as patch:
        stopping(patch, module, name)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, f"a.{ending}", **BOTH)
    assert list(tmp_path.glob("a*"))
    assert hr.predict_large(stack, there, f"a.{ending}", **BOTH).n_resumed == 0
    assert sorted(path.name for path in tmp_path.glob("a*")) == [f"a.{ending}", f"a_confidence.{ending}"]
    assert not list(tmp_path.rglob(UNFINISHED))


def test_a_link_in_a_result_goes_and_what_it_points_to_stays(there, stack, monkeypatch, tmp_path):
    theirs = foreign(tmp_path / "theirs")
    with monkeypatch.context() as patch:
        stopping(patch, Markers, "set_done")
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.tif", shard=64)
    (tmp_path / "a.ome.tif.hedgerow-unfinished.zarr" / "link").symlink_to(theirs)
    hr.predict_large(stack, there, "a.ome.tif", shard=64)
    assert listing(theirs) == {"notes.txt": b"by hand"}
    assert sorted(os.listdir(tmp_path)) == ["a.ome.tif", "image.zarr", "theirs"]


def test_a_result_is_replaced_until_somebody_changes_it(there, stack, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked.ome.zarr").symlink_to(tmp_path / "elsewhere" / "a.ome.zarr")
    for name in ("a.ome.zarr", "linked.ome.zarr"):
        for _ in range(2):
            hr.predict_large(stack, there, name, shard=64)
        next((tmp_path / name).rglob("c/0/0")).write_bytes(b"by hand")
        with pytest.raises(InputError, match="changed since"):
            hr.predict_large(stack, there, name, shard=64)
    assert (tmp_path / "linked.ome.zarr").is_symlink()
