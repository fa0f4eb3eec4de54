"""Labels of other programs as paint."""

import json
import os

import numpy as np
import pytest

from hedgerow.errors import InputError
from hedgerow.paint import imports
from hedgerow.paint.imports import import_labels
from helpers.files import write
from helpers.paint import open_project
from helpers.refusals import assert_one_sentence

SIZE = (96, 120)


def labels_of(project, image=0):
    return project.labels[image].whole()


@pytest.mark.parametrize("ending", ["png", "tif", "npy"])
def test_label_maps_become_paint_and_are_undone_in_one_step(tmp_path, ending):
    project = open_project(tmp_path, 2)
    wanted = np.full(SIZE, 255, np.uint8)
    wanted[10:30, 20:60], wanted[50:70, 70:100], wanted[80:90, 5:9] = 0, 1, 5
    (tmp_path / "labels").mkdir()
    write(tmp_path / "labels" / f"a0.{ending}", wanted)
    said = import_labels(project, str(tmp_path / "labels"))
    assert "1 image(s)" in said[0]
    got = labels_of(project)
    np.testing.assert_array_equal(got[wanted < 2], wanted[wanted < 2])
    assert [own.name for own in project.classes] == ["background", "object", "class 5"]
    assert (got[wanted == 5] == project.classes[2].id).all()
    assert (got[wanted == 255] == 255).all()
    assert not (labels_of(project, 1) != 255).any()
    assert "already" in import_labels(project, str(tmp_path / "labels"))[0]
    project.close()

    again = open_project(tmp_path, 2)
    np.testing.assert_array_equal(labels_of(again), got)
    again.undo_or_redo("undo")
    assert (labels_of(again) == 255).all()
    again.close()


def test_white_in_a_black_and_white_mask_is_the_object(tmp_path):
    project = open_project(tmp_path)
    mask = np.zeros(SIZE, np.uint8)
    mask[10:30, 20:60] = 255
    (tmp_path / "labels").mkdir()
    write(tmp_path / "labels" / "a0_mask.png", mask)
    import_labels(project, str(tmp_path / "labels"))
    np.testing.assert_array_equal(labels_of(project), mask // 255)
    project.close()


def test_outlines_of_coco_and_geojson_become_paint(tmp_path):
    project = open_project(tmp_path, 2)
    coco = {
        "images": [{"id": 7, "file_name": "a1.png"}],
        "categories": [{"id": 3, "name": "nucleus"}],
        "annotations": [{"image_id": 7, "category_id": 3, "segmentation": [[20, 10, 60, 10, 60, 30, 20, 30]]}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    import_labels(project, str(tmp_path / "coco.json"))
    got = labels_of(project, 1)
    expected = np.full(SIZE, 255, np.uint8)
    expected[10:30, 20:60] = next(own.id for own in project.classes if own.name == "nucleus")
    assert (got != expected).sum() <= 2 * (20 + 40) + 4  # the outline itself belongs to a polygon
    np.testing.assert_array_equal(got[11:29, 21:59], expected[11:29, 21:59])

    ring, hole = ([[20, 10], [60, 10], [60, 40], [20, 40]], [[30, 20], [50, 20], [50, 30], [30, 30]])
    feature = {
        "geometry": {"type": "Polygon", "coordinates": [ring, hole]},
        "properties": {"classification": {"name": "Object"}},
    }
    (tmp_path / "a0.geojson").write_text(json.dumps({"features": [feature]}))
    import_labels(project, str(tmp_path / "a0.geojson"))
    got = labels_of(project)
    assert (got[12:18, 22:58] == 1).all()
    assert (got[22:28, 32:48] == 255).all()
    project.close()


def test_labels_of_another_size_and_of_no_image_are_refused(tmp_path):
    project = open_project(tmp_path)
    (tmp_path / "labels").mkdir()
    write(tmp_path / "labels" / "other.png", np.zeros(SIZE, np.uint8))
    with pytest.raises(InputError, match="nothing in"):
        import_labels(project, str(tmp_path / "labels"))
    write(tmp_path / "labels" / "a0.png", np.zeros((20, 30), np.uint8))
    with pytest.raises(InputError, match="20 x 30"):
        import_labels(project, str(tmp_path / "labels"))
    for text in ("{", "[1]", '{"annotations": [{"segmentation": [[1]]}]}', '{"features": [{"geometry": 3}]}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError, match="neither"):
            import_labels(project, str(tmp_path / "bad.json"))
    assert (labels_of(project) == 255).all()
    project.close()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="not on Windows")
def test_outlines_in_a_pipe_are_not_waited_for(tmp_path):
    project, path = open_project(tmp_path), tmp_path / "a.geojson"
    os.mkfifo(path)
    with pytest.raises(InputError) as problem:
        import_labels(project, str(path))
    assert_one_sentence(problem, path, "it is a pipe")
    project.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "neither"),
        (b"[" + b"9" * 100_000 + b"]", "neither"),
        (b"[" + b"[]," * 2000 + b"[]]", "1,000 values"),
        (b"[{}" + b",{}" * 2000 + b"]", "1,000 values"),
        (b'["' + b"x" * 500_000 + b'"]', "400,000 bytes"),
    ],
)
def test_outlines_that_would_take_much_memory_are_not_parsed(tmp_path, monkeypatch, content, words):
    if words != "neither":
        monkeypatch.setattr(imports, "MAX_OUTLINE_VALUES", 1000)
        monkeypatch.setattr(imports, "MAX_OUTLINE_BYTES", 400_000)
        monkeypatch.setattr(imports.json, "loads", lambda text: pytest.fail("it was parsed"))
    project, path = open_project(tmp_path), tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as problem:
        import_labels(project, str(path))
    assert_one_sentence(problem, path, words)
    project.close()
