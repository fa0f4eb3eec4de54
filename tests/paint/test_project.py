"""Projects: history, classes, the lock, and images that come and go."""

import json
import os

import numpy as np
import pytest

from hedgerow.errors import InputError
from hedgerow.images import file_checks
from hedgerow.images.writing import write_labels
from hedgerow.paint.image_files import default_folder, image_files
from hedgerow.paint.messages import Refused, parse
from hedgerow.paint.project import Project
from helpers.paint import open_project, stroke, write_images
from helpers.refusals import assert_one_sentence


@pytest.fixture
def project(tmp_path):
    opened = open_project(tmp_path, n=2)
    yield opened
    opened.close()


def paint(project, **given):
    return project.paint(parse(json.dumps(stroke(**given))))


def again(project):
    project.close()
    return Project(project.folder, project.images)


def test_undo_goes_over_all_images_in_the_order_of_the_journal(project):
    paint(project, id="a", image=0)
    paint(project, id="b", image=1)
    assert project.undo_or_redo("undo")["image"] == 1
    assert project.undo_or_redo("undo")["image"] == 0
    assert project.undo_or_redo("undo") is None
    assert [project.undo_or_redo("redo")["image"] for _ in range(2)] == [0, 1]


def test_parts_of_a_stroke_are_undone_together(project):
    paint(project, id="a")
    paint(project, id="b", joins="a", points=[[20, 30], [40, 50]])
    paint(project, id="c", joins="a", points=[[40, 50], [60, 50]])
    assert project.n_undo == 1
    project = again(project)
    painted = project.undo_or_redo("undo")
    assert painted["pixels"] == {}
    assert painted["region"][1] > 60
    assert project.undo_or_redo("redo")["pixels"]["1"] > 300
    project.close()


RENAMED, NEW = {"id": 0, "name": "sky"}, {"name": "third"}


@pytest.mark.parametrize(
    ("before", "classes", "after"),
    [((), RENAMED, ()), ((), RENAMED, ("undo",)), (("undo",), RENAMED, ()), ((), NEW, ())],
    ids=["changed", "changed back", "after an undo", "a new class"],
)
def test_classes_that_change_within_a_stroke_do_not_change_what_is_undone_after_a_restart(
    project, before, classes, after
):
    paint(project, id="a")
    paint(project, id="b", points=[[70, 70]])
    for action in before:
        project.undo_or_redo(action)
    project.change_class(classes)
    for action in after:
        project.undo_or_redo(action)
    last = "a" if before else "b"
    paint(project, id="c", joins=last, points=[[20, 30], [40, 50]], value=len(project.classes) - 1)
    while project.n_undo:
        project.undo_or_redo("undo")
        assert {value for labels in project.labels for value in labels.pixels} <= {c.id for c in project.classes}
        pixels, state = project.labels[0].pixels, project.paint_state
        project = again(project)
        assert (project.labels[0].pixels, project.paint_state) == (pixels, state)
    project.close()


def test_undoing_a_name_leaves_locked_what_is_locked(project):
    project.change_class({"id": 0, "name": "sky"})
    project.change_class({"id": 0, "locked": True})
    project.undo_or_redo("undo")
    assert [(c.name, c.locked) for c in project.classes] == [("background", True), ("object", False)]
    project.undo_or_redo("redo")
    assert [(c.name, c.locked) for c in project.classes] == [("sky", True), ("object", False)]


def test_a_stroke_of_a_class_that_is_gone_is_not_redone(project):
    paint(project, id="a", value=1)
    project.change_class({"name": "third"})
    paint(project, id="b", value=2)
    project.undo_or_redo("undo")
    project.undo_or_redo("undo")  # the class
    project = again(project)
    with pytest.raises(Refused, match="the class of that stroke is gone"):
        project.undo_or_redo("redo")
    assert set(project.labels[0].pixels) == {1}
    project.close()


def test_paint_without_project_file_keeps_its_classes(project):
    project.change_class({"name": "third"})
    paint(project, id="a", value=2)
    paint(project, id="b", value=1)  # over all of it
    project.close()
    (project.folder / "project.json").unlink()
    for _ in range(2):
        project = Project(project.folder, project.images)
        assert [(c.id, c.name) for c in project.classes][2:] == [(2, "class 2")]
        project.close()


def test_a_part_that_joins_no_last_stroke_is_one_of_its_own(project):
    paint(project, id="a")
    paint(project, id="b", points=[[50, 50]])
    paint(project, id="c", joins="a", points=[[70, 70]])
    assert project.n_undo == 3
    project.undo_or_redo("undo")
    paint(project, id="d", joins="b", points=[[80, 80]])
    assert (project.n_undo, project.n_redo) == (3, 0)


def test_a_stroke_that_is_sent_again_is_answered_and_changes_nothing(project):
    first = paint(project, id="a")
    paint(project, id="b", points=[[50, 50]])
    project = again(project)
    repeated = paint(project, id="a")
    assert (repeated["n"], repeated["region"]) == (first["n"], first["region"])
    assert (project.n_undo, repeated["undo"]) == (2, 2)
    project.close()


def test_what_cannot_be_painted_is_not_kept(project):
    size = project.journal.path.stat().st_size
    for wrong in ({"image": 9}, {"value": 9}, {"tool": "fill", "points": [[1, 1]]}):
        with pytest.raises(Refused):
            paint(project, **wrong)
    with pytest.raises(Refused, match="too large"):
        paint(project, tool="polygon", points=[[0, 0], [9e4, 9e4], [0, 9e4]])
    assert project.journal.path.stat().st_size == size


def test_locked_classes_are_never_changed(project):
    paint(project, id="a", value=1, points=[[30, 30]], radius=5)
    project.change_class({"id": 1, "locked": True})
    paint(project, id="b", value=0, points=[[30, 30]], radius=8)
    before = dict(project.labels[0].pixels)
    paint(project, id="c", tool="eraser", points=[[30, 30]], radius=9)
    assert project.labels[0].pixels == {1: before[1]}
    project.change_class({"id": 1, "locked": False})
    project = again(project)  # the classes that were locked then count, not those that are locked now
    assert project.labels[0].pixels == {1: before[1]}
    project.close()


def test_no_two_classes_have_one_name(project):
    first, second = project.classes[:2]
    for asked in ({"id": second.id, "name": first.name}, {"id": None, "name": first.name}):
        with pytest.raises(Refused, match="another class is called"):
            project.change_class(asked)
    project.change_class({"id": first.id, "name": first.name, "colour": "#123456"})  # its own name


def test_a_new_class_without_a_name_takes_none_of_another_one(project):
    project.change_class({"id": 0, "name": "class 2"})
    with pytest.raises(Refused, match="another class is called class 2"):
        project.change_class({"id": None})
    assert len(project.classes) == 2


def test_a_project_with_two_classes_of_one_name_is_refused(project):
    project.change_class({"id": 0, "name": "glia"})
    project.close()
    path = project.folder / "project.json"
    content = json.loads(path.read_text())
    content["classes"][1]["name"] = "glia"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="two classes have the same name; restore the file"):
        Project(project.folder, project.images)


def test_classes_are_added_changed_and_kept(project):
    project.change_class({"id": None, "name": "glia", "colour": "#010203"})
    project.change_class({"id": 0, "hidden": True})
    project = again(project)
    assert [(one.id, one.name, one.hidden) for one in project.classes] == [
        (0, "background", True), (1, "object", False), (2, "glia", False),
    ]  # fmt: skip
    assert project.legend.colours[2] == (1, 2, 3)
    for _ in range(61):
        project.change_class({"id": None})
    with pytest.raises(Refused, match="64 classes"):
        project.change_class({"id": None})
    with pytest.raises(Refused, match="no such class"):
        project.change_class({"id": 200, "name": "x"})
    project.close()


def test_paint_on_an_image_that_is_gone_waits_for_it(project, tmp_path):
    paint(project, id="a", image=1)
    paint(project, id="b", image=0)
    project.close()
    fewer = Project(project.folder, project.images[:1])
    assert (fewer.n_undo, fewer.labels[0].n_painted > 0) == (2, True)
    fewer.close()
    whole = Project(project.folder, project.images)
    assert whole.labels[1].n_painted > 0
    whole.close()


def test_two_servers_on_one_project_are_told_so(project):
    project.folder_lock.note("http://127.0.0.1:4711/")
    with pytest.raises(InputError, match=rf"process {os.getpid()} on .* at http://127.0.0.1:4711/"):
        Project(project.folder, project.images)


def test_a_damaged_project_is_refused_and_let_go(project):
    project.close()
    (project.folder / "project.json").write_text("{")
    for _ in range(2):  # the second time, the lock is free
        with pytest.raises(InputError, match=r"project\.json"):
            Project(project.folder, project.images)


def test_images_of_another_kind_are_left_out(tmp_path):
    folder = write_images(tmp_path / "images", 2)
    np.save(folder / "colour.npy", np.zeros((40, 40, 3), np.uint8))
    (folder / "broken.png").write_bytes(b"\x89PNG nothing")
    found, left_out = image_files(folder)
    assert [image.name for image in found] == ["a0.png", "a1.png"]
    assert [one for one in left_out if "3 channel(s)" in one]
    assert [one for one in left_out if "broken.png" in one]


def test_two_images_of_one_name_are_refused(tmp_path):
    folder = write_images(tmp_path / "images")
    write_labels(folder / "a0.tif", np.zeros((9, 9), np.uint8))
    with pytest.raises(InputError, match="same name"):
        image_files(folder)


def test_the_folder_of_a_project_lies_beside_the_images(tmp_path):
    write_images(tmp_path / "photos")
    assert default_folder(tmp_path / "photos") == tmp_path / "photos-painted"
    assert default_folder(tmp_path / "photos" / "a0.png") == tmp_path / "photos-painted"


@pytest.mark.parametrize(
    ("shape", "chunks", "words"),
    [
        ((10**9, 10**9), (1024, 1024), ("1,000,000,000 x 1,000,000,000 pixels", "at most 200,000")),
        ((20_000, 20_000), (1, 1), ("400,000,000 chunks", file_checks.CHUNKS)),
    ],
)
def test_an_image_whose_tiles_would_take_days_is_refused_at_the_start(tmp_path, shape, chunks, words):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(tmp_path / "a.zarr", shape=shape, dtype="u1", chunks=chunks)
    with pytest.raises(InputError) as problem:
        image_files(tmp_path / "a.zarr")
    assert_one_sentence(problem, tmp_path / "a.zarr", *words)
