"""No command overwrites what it reads, nor files that Hedgerow did not write, unless --overwrite says so."""

import os
import shutil

import numpy as np
import pytest

from hedgerow.images.label_files import read_labels
from hedgerow.images.legend import Legend, write_legend
from hedgerow.overwrite_guard import is_ours
from helpers.files import listing, unchanged, write
from helpers.refusals import assert_refused

torch = pytest.importorskip("torch")


@pytest.fixture
def room(trained_place, refined):
    """Images, labels, models, settings, and what someone else wrote."""
    from hedgerow.io.model_file import save

    save(refined, trained_place / "net.hedge")
    for name in ("theirs.txt", "theirs.png", "theirs.html", "theirs.c", "theirs.hedge", "theirs.json"):
        (trained_place / name).write_text("by hand")
    return trained_place


def commands(room):
    """Every command that writes a file, up to the name of that file, and what it reads."""
    model, net, images, labels = room / "model.hedge", room / "net.hedge", room / "images", room / "labels"
    settings, short = room / "settings.toml", room / "short.toml"
    pair = [images / "a0.png", labels / "a0.png"]
    return {
        "train": (["train", images, labels, "--config", settings, "-o"], ".hedge", [*pair, settings]),
        "refine": (["refine", model, images, labels, "--config", short, "-o"], ".hedge", [model, *pair, short]),
        "back": (["back", net, images, "-o"], ".hedge", [net, pair[0]]),
        "evaluate": (["evaluate", model, images, labels, "--json"], ".json", [model, *pair]),
        "report": (["report", model, images, labels, "-o"], ".html", [model, *pair]),
        "look": (["look", model, pair[0], "--truth", pair[1], "-o"], ".png", pair),
        "export": (["export", model, "--to", "c", "-o"], ".c", []),
    }


NAMES = ("train", "refine", "back", "evaluate", "report", "look", "export")


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_never_overwritten(hedgerow, room, name):
    command, _, inputs = commands(room)[name]
    before = listing(room)
    for path in inputs:
        for more in ([], ["--overwrite"]):
            assert_refused(hedgerow(*command, path, *more), path, "one of the files to read")
    unchanged(room, before)


@pytest.mark.parametrize("name", ["train", "refine", "evaluate", "report", "measure"])
def test_names_of_classes_and_groups_are_inputs_too(hedgerow, room, name):
    legend, groups = room / "labels" / "classes.toml", room / "groups.csv"
    write_legend(legend, Legend({0: "sky", 1: "tree"}))  # which Hedgerow wrote: else it would not be overwritten anyway
    groups.write_text("a0,1\na1,2\na2,3\n")
    command = ["measure", room / "labels", "-o"] if name == "measure" else commands(room)[name][0]
    before = listing(room)
    assert_refused(hedgerow(*command, legend), legend, "one of the files to read")
    if name in ("train", "refine"):
        command = [*command[:-1], "--groups", groups, "-o"]
        assert_refused(hedgerow(*command, groups, "--overwrite"), groups, "one of the files to read")
    unchanged(room, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_an_input_is_not_overwritten_by_another_name(hedgerow, room, name, link):
    command, ending, inputs = commands(room)[name]
    for path in inputs:
        link(path, room / f"other{ending}")
        before = listing(room)
        for more in ([], ["--overwrite"]):
            assert_refused(hedgerow(*command, room / f"other{ending}", *more), "one of the files to read")
        unchanged(room, before)
        assert os.path.samefile(path, room / f"other{ending}")
        (room / f"other{ending}").unlink()


def test_nothing_is_written_into_an_image_that_is_a_folder(hedgerow, room):
    assert hedgerow("predict", room / "model.hedge", room / "images", "-o", room / "z", "--format", "zarr").code == 0
    before = listing(room)
    for more in ([], ["--overwrite"]):
        inside = room / "z" / "a0.zarr" / "scores.json"
        command = ["evaluate", room / "model.hedge", room / "images" / "a0.png", room / "z" / "a0.zarr"]
        assert_refused(hedgerow(*command, "--json", inside, *more), inside, "or is inside one")
    unchanged(room, before)


@pytest.mark.parametrize("name", NAMES)
def test_files_of_others_are_overwritten_only_on_request(hedgerow, room, name):
    command, ending, _ = commands(room)[name]
    theirs = room / f"theirs{ending}"
    before = listing(room)
    assert_refused(hedgerow(*command, theirs), theirs, "--overwrite")
    unchanged(room, before)
    assert hedgerow(*command, theirs, "--overwrite").code == 0
    assert theirs.read_bytes() != b"by hand"
    assert hedgerow(*command, theirs).code == 0  # now it is ours


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_name_is_not_the_current_folder(hedgerow, room, name, monkeypatch):
    command, _, _ = commands(room)[name]
    (room / "here").mkdir()
    monkeypatch.chdir(room / "here")
    assert_refused(hedgerow(*command, ""))
    assert os.listdir(room / "here") == []


@pytest.mark.parametrize("name", NAMES)
def test_pipes_stay_pipes(hedgerow, room, name):
    command, ending, _ = commands(room)[name]
    os.mkfifo(room / f"pipe{ending}")
    assert_refused(hedgerow(*command, room / f"pipe{ending}"), "pipe")
    assert not (room / f"pipe{ending}").is_file()


def test_the_header_of_exported_c_is_not_overwritten_either(hedgerow, room):
    (room / "fine.h").write_text("by hand")
    assert_refused(hedgerow("export", room / "model.hedge", "--to", "c", "-o", room / "fine.c"), "fine.h")
    assert not (room / "fine.c").exists()


def test_predict_does_not_replace_labels_painted_by_hand(hedgerow, room):
    command = ["predict", room / "model.hedge", room / "images", "-o", room / "labels"]
    before = listing(room)
    assert_refused(hedgerow(*command), room / "labels" / "a0.png", room / "labels" / "a1.png", "--overwrite")
    unchanged(room, before)
    assert hedgerow(*command, "--overwrite").code == 0
    assert is_ours(room / "labels" / "a0.png")


def test_predict_replaces_its_own_results_but_not_corrected_ones(hedgerow, room):
    command = ["predict", room / "model.hedge", room / "images", "-o", room / "out", "--proba"]
    for _ in range(2):
        assert hedgerow(*command).code == 0
    corrected = read_labels(room / "out" / "a1.png")
    corrected[:5] = 77
    write(room / "out" / "a1.png", corrected)
    finished = hedgerow(*command)
    assert_refused(finished, room / "out" / "a1.png")
    assert "a0" not in finished.err
    np.testing.assert_array_equal(read_labels(room / "out" / "a1.png"), corrected)


def test_predict_into_an_empty_name_or_an_image_is_refused(hedgerow, room, monkeypatch):
    (room / "here").mkdir()
    monkeypatch.chdir(room / "here")
    assert_refused(hedgerow("predict", room / "model.hedge", room / "images", "-o", ""), "empty")
    assert hedgerow("predict", room / "model.hedge", room / "images", "-o", room / "z", "--format", "zarr").code == 0
    before = listing(room)
    assert_refused(hedgerow("predict", room / "model.hedge", room / "images", "-o", room / "z" / "a0.zarr"))
    unchanged(room, before)
    assert os.listdir(room / "here") == []


def test_links_to_images_are_not_replaced_by_results(hedgerow, room):
    (room / "links").mkdir()
    for name in ("a0.png", "a1.png"):
        (room / "links" / name).symlink_to(room / "images" / name)
    before = listing(room)
    command = ["predict", room / "model.hedge", room / "links", "-o"]
    for folder in ("links", "images"):
        assert_refused(hedgerow(*command, room / folder), "holds the images themselves")
    assert hedgerow("predict", room / "model.hedge", room / "images", "-o", room / "links").code == 2
    unchanged(room, before)
    assert (room / "links" / "a0.png").is_symlink()


@pytest.mark.parametrize("what", ["sample", "demo"])
def test_commands_that_fill_a_folder_leave_what_is_there(hedgerow, room, what):
    folder = room / "folder"
    (folder / "images").mkdir(parents=True)
    for name in ("images/somites_000.png", "report.html"):
        (folder / name).write_text("by hand")
    before = listing(room)
    command = {"sample": ["sample", "somites"], "demo": ["demo"]}[what]
    assert_refused(hedgerow(*command, "-o", folder), folder, "--overwrite")
    unchanged(room, before)


def test_a_folder_or_foreign_file_in_the_place_of_the_checkpoint(hedgerow, room):
    command, _, _ = commands(room)["refine"]
    (room / "n.hedge.checkpoint").mkdir()
    assert_refused(hedgerow(*command, room / "n.hedge"), "n.hedge.checkpoint", "not a file")
    assert_refused(hedgerow(*command, room / "n.hedge", "--restart"), "n.hedge.checkpoint", "not a file")
    shutil.rmtree(room / "n.hedge.checkpoint")
    (room / "n.hedge.checkpoint").write_text("by hand")
    assert_refused(hedgerow(*command, room / "n.hedge", "--restart"), "n.hedge.checkpoint")
    assert (room / "n.hedge.checkpoint").read_text() == "by hand"
