"""Scores and reports of large images: the same as in memory, and only labelled parts are read."""

import re
from argparse import Namespace

import numpy as np
import pytest
import tifffile

import hedgerow as hr
from hedgerow import jobs
from hedgerow.errors import InputError
from hedgerow.images.regions import Region
from hedgerow.jobs import reporting
from hedgerow.scale import cluster, large_pairs
from hedgerow.scale.worker_tasks import content_of, each_on
from helpers.large import picture, write_ome_zarr, write_zarr

SIZE = (150, 190)


@pytest.fixture
def there(tmp_path, monkeypatch, stack):
    """A model, an image and its labels, which count as large."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(large_pairs, "LARGE_PIXELS", 1000)
    hr.save(stack, "model.hedge")
    image = picture()
    truth = np.where(image > 150, 200, np.where(image > 80, 77, 3)).astype(np.uint8)
    truth[:, 100:] = 255
    write_zarr("image.zarr", image)
    write_zarr("labels/image.zarr", truth)
    return image, truth


def test_scores_are_those_of_the_image_in_memory(there, stack, monkeypatch):
    image, truth = there
    expected = hr.evaluate(stack, image, truth)
    read = []
    monkeypatch.setattr(large_pairs.LargePair, "target", _noting(read, large_pairs.LargePair.target))
    monkeypatch.setattr(large_pairs, "LARGEST_SHARD_SIDE", 64)
    result = jobs.evaluate(
        jobs.EvaluateRequest("model.hedge", "image.zarr", "labels/image.zarr", "scores.json", background=3)
    )
    np.testing.assert_array_equal(result.scores.confusion, expected.confusion)
    assert len(read) == 9  # part by part
    assert result.without_background == expected.balanced_accuracy_without(3)


def test_labels_with_a_table_of_colours_are_class_values(there, stack):
    truth = there[1]
    colours = np.arange(3 * 256).reshape(3, 256).astype(np.uint16)
    tifffile.imwrite("labels/image.tif", truth, photometric="palette", colormap=colours, tile=(64, 64))
    pair = large_pairs.large_pair(stack, "image.zarr", "labels/image.tif")
    expected = large_pairs.large_pair(stack, "image.zarr", "labels/image.zarr")
    region = Region(20, 90, 50, 130)
    np.testing.assert_array_equal(pair.target(region), expected.target(region))


def _noting(read, target):
    return lambda self, region: read.append(region) or target(self, region)


def test_what_has_no_label_is_not_predicted(there, stack, monkeypatch):
    predicted = []
    outputs = large_pairs.region_outputs
    monkeypatch.setattr(large_pairs, "region_outputs", lambda *given: predicted.append(given[2]) or outputs(*given))
    jobs.evaluate(jobs.EvaluateRequest("model.hedge", "image.zarr", "labels/image.zarr"))
    assert predicted == [Region(0, 150, 0, 100)]


def test_small_and_large_images_are_scored_together(there, stack, monkeypatch):
    image, truth = there
    monkeypatch.setattr(large_pairs, "LARGE_PIXELS", 150 * 190)
    write_zarr("both/large.zarr", np.vstack([image] * 2))
    write_zarr("both/small.zarr", image)
    write_zarr("truth/large.zarr", np.vstack([truth] * 2))
    write_zarr("truth/small.zarr", truth)
    expected = hr.evaluate(stack, [np.vstack([image] * 2), image], [np.vstack([truth] * 2), truth])
    found = jobs.evaluate(jobs.EvaluateRequest("model.hedge", "both", "truth", csv="scores.csv"))
    np.testing.assert_array_equal(found.scores.confusion, expected.confusion)
    with open("scores.csv") as file:
        assert [line.split(",")[0] for line in file][1:] == ["small.zarr", "large.zarr"]


def test_a_level_with_labels_of_its_size(there, stack):
    image, truth = there
    halves = np.ascontiguousarray(image[::2, ::2]), np.ascontiguousarray(truth[::2, ::2])
    write_ome_zarr("b.ome.zarr", [image, halves[0]])
    write_ome_zarr("b_labels.ome.zarr", [truth, halves[1]])
    expected = hr.evaluate(stack, *halves)
    for options in ({"level": 1}, {"pixel_size": 1.0}):
        found = jobs.evaluate(jobs.EvaluateRequest("model.hedge", "b.ome.zarr", "b_labels.ome.zarr", **options))
        np.testing.assert_array_equal(found.scores.confusion, expected.confusion)


def test_refusals(there):
    _, truth = there
    write_zarr("other/image.zarr", truth[:100])
    with pytest.raises(InputError, match=r"150 rows x 190 columns and its labels 100 rows"):
        jobs.evaluate(jobs.EvaluateRequest("model.hedge", "image.zarr", "other/image.zarr"))
    write_zarr("none/image.zarr", np.full_like(truth, 255))
    with pytest.raises(InputError, match="has no labelled pixel"):
        jobs.evaluate(jobs.EvaluateRequest("model.hedge", "image.zarr", "none/image.zarr"))
    write_zarr("unknown/image.zarr", np.full_like(truth, 9))
    with pytest.raises(InputError, match=r"of unknown class, values 9"):
        jobs.evaluate(jobs.EvaluateRequest("model.hedge", "image.zarr", "unknown/image.zarr"))


def test_the_command_line(there, stack, hedgerow):
    image, truth = there
    run = hedgerow("evaluate", "model.hedge", "image.zarr", "labels/image.zarr")
    assert run.code == 0, run.err
    assert f"mean Dice {hr.evaluate(stack, image, truth).mean_dice:.4f}" in run.out


def test_a_report_shows_the_parts_with_the_most_labels(there, stack, hedgerow, monkeypatch):
    pytest.importorskip("matplotlib")
    image, truth = there
    monkeypatch.setattr(reporting, "PART_SIDE", 40)
    truth[:] = 255
    truth[80:120, 40:80] = np.where(image > 80, 77, 3)[80:120, 40:80]
    truth[0:5, 0:5] = 3
    write_zarr("labels/image.zarr", truth)
    run = hedgerow("report", "model.hedge", "image.zarr", "labels/image.zarr", "-o", "report.html")
    assert run.code == 0, run.err
    assert "the 2 parts of 40 x 40 pixels with the most labels are shown" in run.out
    with open("report.html", encoding="utf-8") as file:
        page = file.read()
    assert "image.zarr, rows 80-120, columns 40-80" in page
    # The score equals that of evaluating the whole image.
    expected = hr.evaluate(stack, image, truth)
    assert re.search(f"{expected.mean_dice:.3f}"[1:], page)


def test_parts_are_scored_by_workers(there, stack, monkeypatch):
    """Tasks run here; `test_cluster` has real workers."""
    image, truth = there

    def side_by_side(client, work, items, *others):
        return ((item, work(item, *others)) for item in items)

    client = Namespace(submit=lambda work, content, **options: work(content))
    monkeypatch.setattr(cluster, "side_by_side", side_by_side)
    who = each_on(client, large_pairs.table_of, content_of(stack), "cpu")
    pair = large_pairs.large_pair(stack, "image.zarr", "labels/image.zarr")
    tables = list(who(pair, Region(0, 150, 0, 190).tiles(64)))
    np.testing.assert_array_equal(sum(tables), hr.evaluate(stack, image, truth).confusion)
