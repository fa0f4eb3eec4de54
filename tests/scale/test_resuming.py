"""An interrupted run is resumed, and an unfinished result is never taken for a finished one."""

import errno
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.scale import large_prediction, ome_zarr_out, shard_prediction
from hedgerow.scale.markers import UNFINISHED, Markers
from helpers.files import listing, write
from helpers.large import levels_of, picture, write_zarr

OPTIONS = {"what": ("labels", "confidence"), "shard": 64}


class Stopped(Exception):
    """As if the process had been killed."""


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_zarr("image.zarr", picture())


def stopping_after(n, monkeypatch):
    """Shards that are computed; the run stops in the middle of the next one, after its data and before its marker."""
    names = []
    set_done = Markers.set_done

    def stop(self, shard):
        if len(names) == n:
            raise Stopped
        names.append(shard)
        set_done(self, shard)

    monkeypatch.setattr(Markers, "set_done", stop)
    return names


@pytest.mark.parametrize("n_before", [0, 5, 8])
def test_only_what_is_missing_is_computed(there, stack, monkeypatch, n_before, tmp_path):
    hr.predict_large(stack, there, "whole.ome.zarr", **OPTIONS)
    with monkeypatch.context() as patch:
        names = stopping_after(n_before, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS)
    assert len(names) == n_before
    found = hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS)
    assert (found.n_shards, found.n_resumed) == (9, n_before)
    for suffix in ("", "_confidence"):
        assert listing(tmp_path / f"a{suffix}.ome.zarr") == listing(tmp_path / f"whole{suffix}.ome.zarr")


def test_what_is_unfinished_is_refused_by_every_reader(there, stack, monkeypatch):
    with monkeypatch.context() as patch:
        stopping_after(3, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS)
    for path in ("a.ome.zarr", "a_confidence.ome.zarr"):
        assert "ome" not in zarr.open_group(path).attrs
        for read in (hr.read_image, lambda path: hr.predict_large(stack, path, "b.ome.zarr")):
            with pytest.raises(InputError, match=r"is not finished: .* rerun the same command"):
                read(path)


def test_a_run_goes_on_only_with_the_same(there, stack, monkeypatch):
    with monkeypatch.context() as patch:
        stopping_after(3, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS)
    other = replace(stack, unlabelled=254)
    with pytest.raises(InputError, match="unfinished result of another run: it differs in model, results"):
        hr.predict_large(other, there, "a.ome.zarr", **OPTIONS)
    with pytest.raises(InputError, match=r"differs in .*region"):
        hr.predict_large(stack, there, "a.ome.zarr", region="0:100,0:190", **OPTIONS)
    write_zarr("image.zarr", picture((150, 191)))
    with pytest.raises(InputError, match="differs in image"):
        hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS)
    assert hr.predict_large(stack, there, "a.ome.zarr", overwrite=True, **OPTIONS).n_resumed == 0


def test_if_one_of_the_results_is_gone_all_begin_anew(there, stack, monkeypatch):
    with monkeypatch.context() as patch:
        stopping_after(3, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS)
    shutil.rmtree("a_confidence.ome.zarr")
    assert hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS).n_resumed == 0
    assert levels_of("a_confidence.ome.zarr")[0].min() > 0


def test_a_run_that_stops_while_it_finishes(there, stack, monkeypatch):
    with monkeypatch.context() as patch:
        finish = Markers.finish
        patch.setattr(Markers, "finish", lambda self: (_ for _ in ()).throw(Stopped))
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS)
        patch.setattr(Markers, "finish", finish)
    with pytest.raises(InputError, match="is not finished"):
        hr.read_image("a.ome.zarr")
    assert hr.predict_large(stack, there, "a.ome.zarr", **OPTIONS).n_resumed == 9
    assert not os.path.exists(f"a.ome.zarr/{UNFINISHED}")


@pytest.mark.parametrize("ending", ["ome.zarr", "ome.tif"])
def test_a_run_that_stops_after_one_of_its_results_was_finished(there, stack, monkeypatch, ending, tmp_path):
    hr.predict_large(stack, there, f"whole.{ending}", **OPTIONS)
    with monkeypatch.context() as patch:
        finish, remove = Markers.finish, ome_zarr_out.remove

        def finish_and_stop(self):
            finish(self)
            if "confidence" in self.result:
                raise Stopped

        def remove_and_stop(result, *given):
            was_there = os.path.exists(result.store)
            remove(result, *given)
            if was_there and result.content == "confidence":
                raise Stopped

        patch.setattr(Markers, "finish", finish_and_stop)
        patch.setattr(ome_zarr_out, "remove", remove_and_stop)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, f"a.{ending}", **OPTIONS)
    assert hr.predict_large(stack, there, f"a.{ending}", **OPTIONS).n_resumed == 9
    for suffix in ("", "_confidence"):
        found, whole = (hr.read_image(f"{name}{suffix}.{ending}") for name in ("a", "whole"))
        np.testing.assert_array_equal(found, whole)
    assert not list(tmp_path.rglob(UNFINISHED))


def test_what_a_replaced_run_still_computes_is_not_written(there, stack, monkeypatch, tmp_path):
    """A worker may not know yet that its run has ended and another one has replaced it."""
    write_zarr("other.zarr", picture(seed=5))
    old = []
    with monkeypatch.context() as patch:
        patch.setattr(shard_prediction, "work_on", lambda job, model, shard: old.append((job, model, shard)) or "")
        patch.setattr(large_prediction, "finish", lambda *given: None)
        hr.predict_large(stack, there, "a.ome.zarr", shard=64)
    with monkeypatch.context() as patch:
        stopping_after(1, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, "other.zarr", "a.ome.zarr", shard=64, overwrite=True)
    before = listing(tmp_path / "a.ome.zarr")
    with pytest.raises(InputError, match=r"another run has replaced the one that was writing a\.ome\.zarr"):
        shard_prediction.work_on(*old[5])
    assert listing(tmp_path / "a.ome.zarr") == before


def test_a_file_that_is_read_whole_is_known_again(tmp_path, stack, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "image.png", picture())
    with monkeypatch.context() as patch:
        stopping_after(2, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, "image.png", "a.ome.zarr", shard=64, pages=[1])
    assert hr.predict_large(stack, "image.png", "a.ome.zarr", shard=64, pages=[1]).n_resumed == 2


def test_a_marker_and_not_a_chunk_says_that_a_shard_is_done(there, stack, monkeypatch, tmp_path):
    """A masked shard has only the fill value, so nothing is written for it; still, it is not computed again."""
    with monkeypatch.context() as patch:
        stopping_after(2, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", mask="> 1000", shard=64)
    assert not list((tmp_path / "a.ome.zarr" / "0").glob("c/*/*"))
    assert hr.predict_large(stack, there, "a.ome.zarr", mask="> 1000", shard=64).n_resumed == 2


def test_a_full_disk_is_one_sentence_and_the_run_goes_on(there, stack, monkeypatch):
    with monkeypatch.context() as patch:
        calls = []

        def full(*given):
            calls.append(given)
            if len(calls) > 3:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(*given)

        write = ome_zarr_out.write_shard
        patch.setattr(ome_zarr_out, "write_shard", full)
        with pytest.raises(InputError, match=r"cannot write 0/c/1/0 of a\.ome\.zarr: No space left on device; check"):
            hr.predict_large(stack, there, "a.ome.zarr", shard=64)
    assert hr.predict_large(stack, there, "a.ome.zarr", shard=64).n_resumed == 3
    np.testing.assert_array_equal(hr.read_image("a.ome.zarr"), stack.predict(picture()))


def test_a_damaged_chunk_of_the_image_is_named(there, stack, tmp_path):
    chunk = tmp_path / "image.zarr" / "c" / "1" / "2"
    whole = chunk.read_bytes()
    chunk.write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"image\.zarr: its chunk c/1/2 is damaged"):
        hr.predict_large(stack, there, "a.ome.zarr", shard=64)
    with pytest.raises(InputError, match="is not finished"):
        hr.read_image("a.ome.zarr")
    chunk.write_bytes(whole)
    assert hr.predict_large(stack, there, "a.ome.zarr", shard=64).n_resumed > 0
    np.testing.assert_array_equal(hr.read_image("a.ome.zarr"), stack.predict(picture()))


def test_a_run_does_not_go_on_with_an_image_that_was_saved_anew(there, stack, monkeypatch):
    """An image of the same shape may be another one, and half of the result would be of the wrong image."""
    with monkeypatch.context() as patch:
        stopping_after(3, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", shard=64)
    write_zarr("image.zarr", picture(seed=9))
    with pytest.raises(InputError, match="differs in image"):
        hr.predict_large(stack, there, "a.ome.zarr", shard=64)


def test_a_shard_is_written_before_its_marker(there, stack, monkeypatch):
    order = []
    monkeypatch.setattr(ome_zarr_out, "write_shard", lambda *given: order.append("data"))
    monkeypatch.setattr(Markers, "set_done", lambda *given: order.append("marker"))
    monkeypatch.setattr(shard_prediction, "predicted", lambda *given: {"labels": None})
    hr.predict_large(stack, there, "a.ome.zarr", shard=64)
    assert order == ["data", "marker"] * 9


def test_a_damaged_record(there, stack, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        stopping_after(1, patch)
        with pytest.raises(Stopped):
            hr.predict_large(stack, there, "a.ome.zarr", shard=64)
    (tmp_path / "a.ome.zarr" / UNFINISHED / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"is damaged, so the run in .* cannot be resumed; remove"):
        hr.predict_large(stack, there, "a.ome.zarr", shard=64)
