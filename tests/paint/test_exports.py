"""Exports never overwrite or delete a file that the page did not write: label maps, images, models."""

import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hedgerow.errors import InputError
from hedgerow.images.reading import read_image
from hedgerow.images.writing import write_labels
from hedgerow.io import model_file
from hedgerow.jobs.effort_run import Stage, Trained
from hedgerow.paint import long_jobs
from hedgerow.paint.exports import check_label_maps, exported_file
from hedgerow.paint.image_files import image_files, open_project
from hedgerow.paint.messages import Refused, parse
from hedgerow.paint.project import Project
from hedgerow.paint.session import Session
from hedgerow.progress import silent
from hedgerow.synthetic import write_sample
from helpers.files import listing
from helpers.paint import stroke, write_images
from helpers.refusals import assert_one_sentence


class Page:
    """The session of a project, without a browser."""

    def __init__(self, images, folder):
        self.project, _ = open_project([str(images)], folder)
        self.long_jobs = Session(self.project, lambda message: None).long_jobs

    def paint(self, *values, image=0):
        for value in values:
            given = stroke(id=f"{image}-{value}", image=image, value=value, points=[[10 + 20 * value, 10], [20, 30]])
            self.project.paint(parse(json.dumps(given)))

    def stray(self, id):
        self.project.paint(parse(json.dumps(stroke(id=id, value=1, points=[[60, 60]]))))

    def export(self, *what):
        return self.long_jobs.export(list(what) or ["labels"], silent)

    def close(self):
        self.project.close()


@pytest.fixture
def pages():
    """Opens sessions, and closes them at the end of the test."""
    opened = []

    def open_page(images, folder):
        opened.append(Page(images, folder))
        return opened[-1]

    yield open_page
    for page in opened:
        page.close()


def files_of(folder, *parts):
    return {name: content for name, content in listing(folder).items() if name.split("/")[0] in parts}


def test_label_maps_of_a_command_in_the_folder_of_the_project_stay(tmp_path, pages):
    write_sample("facades", tmp_path / "example", 4, 0, strokes=True)
    before = listing(tmp_path / "example")
    page = pages(tmp_path / "example" / "images", tmp_path / "example")
    page.paint(0, 1)
    for what in ("labels", "report"):
        with pytest.raises(InputError) as problem:
            page.export(what)
        assert_one_sentence(problem, tmp_path / "example" / "labels", "and 2 more", "move it away", "--project")
    with pytest.raises(InputError, match="this page did not write them"):
        page.long_jobs.train(silent)
    now = listing(tmp_path / "example")
    assert {name: now[name] for name in before} == before
    assert set(now) - set(before) == {"journal.jsonl", "lock", "project.json"}
    assert not (tmp_path / "example" / "exports").exists(), "nothing half-exported"


def test_a_refused_export_leaves_no_folder(tmp_path, pages):
    page = pages(write_images(tmp_path / "images"), tmp_path / "project")
    page.paint(1)
    with pytest.raises(Refused, match="only one class"):  # this is known only when training starts
        page.export("segmentation")
    assert not (tmp_path / "project" / "exports").exists()
    assert page.export("labels")["files"][0]["address"].startswith("api/exports/")


def test_exported_files_can_be_downloaded_after_a_restart_and_no_other_file(tmp_path, pages):
    page = pages(write_images(tmp_path / "images"), tmp_path / "project")
    page.paint(0, 1)
    page.export("labels")
    page.close()
    project = pages(tmp_path / "images", tmp_path / "project").project
    assert exported_file(project, 1, "labels.zip").read_bytes()[:2] == b"PK"
    for number, name in (
        (2, "labels.zip"), (10**300, "labels.zip"), (1, ".."), (1, "../../project.json"), (0, "project.json"),
        (0, "labels/a0.png"), (0, "model.hedge"),
    ):  # fmt: skip
        assert exported_file(project, number, name) is None


def test_the_way_out_that_the_refusal_names(tmp_path, pages):
    write_sample("facades", tmp_path / "example", 2, 0, strokes=True)
    page = pages(tmp_path / "example" / "images", tmp_path / "elsewhere")
    page.paint(0, 1)
    assert [item["name"] for item in page.export()["files"]] == ["labels.zip"]
    inside = pages(tmp_path / "example" / "images", tmp_path / "example")
    inside.paint(0, 1)
    (tmp_path / "example" / "labels").rename(tmp_path / "mine")
    assert [item["name"] for item in inside.export()["files"]] == ["labels.zip"]


@pytest.mark.parametrize("part", ["labels", "exports/1"])
@pytest.mark.parametrize("way", ["as it is", "through a link", "folder linked"])
def test_images_where_the_page_would_write_are_refused_at_the_start(tmp_path, part, way):
    place = tmp_path / "work" / part
    if way == "folder linked":
        images = write_images(tmp_path / "photos", 4)
        (tmp_path / "work").mkdir()
        (tmp_path / "work" / part.split("/")[0]).symlink_to(images)
    else:
        place.mkdir(parents=True)
        images = write_images(place, 4)
    if way == "through a link":
        (tmp_path / "link").symlink_to(place)
        images = tmp_path / "link"
    before = listing(tmp_path)
    with pytest.raises(InputError) as problem:
        open_project([str(images)], tmp_path / "work")
    assert_one_sentence(problem, images / "a0.png", "--project")
    assert listing(tmp_path) == before, "no journal, no lock"


def test_images_beside_the_label_maps_are_painted_on(tmp_path, pages):
    write_images(tmp_path / "work", 2)
    before = listing(tmp_path / "work")
    page = pages(tmp_path / "work", tmp_path / "work")
    page.paint(0, 1)
    page.export()
    assert {name: listing(tmp_path / "work")[name] for name in before} == before


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_label_map_that_is_an_image_by_another_name_is_refused(tmp_path, pages, link):
    images = write_images(tmp_path / "images", 2)
    (tmp_path / "work" / "labels").mkdir(parents=True)
    page = pages(images, tmp_path / "work")
    page.paint(0, 1)
    for name in ("a0.png", "a1.png"):  # one would be overwritten, one deleted
        link(images / name, tmp_path / "work" / "labels" / name)
        before = listing(tmp_path / "images")
        with pytest.raises(InputError, match="one of the files to read"):
            page.export()
        assert listing(tmp_path / "images") == before
        assert os.path.lexists(tmp_path / "work" / "labels" / name)
        (tmp_path / "work" / "labels" / name).unlink()


def test_a_second_export_replaces_and_deletes_what_the_first_one_wrote(tmp_path, pages):
    page = pages(write_images(tmp_path / "images", 2), tmp_path / "work")
    page.paint(0, 1)
    page.paint(0, 1, image=1)
    page.export()
    labels = tmp_path / "work" / "labels"
    assert sorted(os.listdir(labels)) == ["a0.png", "a1.png", "classes.toml"]
    first = listing(labels)
    page.project.undo_or_redo("undo")
    page.project.undo_or_redo("undo")
    page.project.paint(parse(json.dumps(stroke(id="more", points=[[60, 60], [80, 80]]))))
    page.export()
    assert sorted(os.listdir(labels)) == ["a0.png", "classes.toml"]
    assert listing(labels)["a0.png"] != first["a0.png"]
    page.close()
    again = pages(tmp_path / "images", tmp_path / "work")  # a later program recognises them, too
    again.export()
    assert sorted(os.listdir(tmp_path / "work" / "exports")) == ["1", "2", "3"]


@pytest.mark.parametrize("takes_back", [False, True])
def test_an_exported_map_that_somebody_edited_stays(tmp_path, pages, takes_back):
    page = pages(write_images(tmp_path / "images", 2), tmp_path / "work")
    page.paint(0, 1)
    page.paint(0, 1, image=1)
    page.export()
    edited = tmp_path / "work" / "labels" / "a1.png"
    write_labels(edited.with_name("corrected.png"), np.zeros((96, 120), np.uint8))
    shutil.copyfile(edited.with_name("corrected.png"), edited)
    edited.with_name("corrected.png").unlink()
    if takes_back:
        page.project.undo_or_redo("undo")
        page.project.undo_or_redo("undo")
    page.project.paint(parse(json.dumps(stroke(id="more", points=[[60, 60], [80, 80]]))))
    before = listing(tmp_path / "work" / "labels")
    with pytest.raises(InputError) as problem:
        page.export()
    assert_one_sentence(problem, edited, "changed since", "--project")
    assert listing(tmp_path / "work" / "labels") == before, "the other map and classes.toml are as they were, too"
    assert not read_image(edited).any()


def test_edited_classes_stay(tmp_path, pages):
    page = pages(write_images(tmp_path / "images"), tmp_path / "work")
    page.paint(0, 1)
    page.export()
    legend = tmp_path / "work" / "labels" / "classes.toml"
    legend.write_text(legend.read_text() + "# mine\n")
    with pytest.raises(InputError, match=r"classes\.toml would be overwritten"):
        page.export()
    assert legend.read_text().endswith("# mine\n")


def test_models_never_replace_one_another_nor_those_of_a_command(tmp_path, pages, stack):
    page = pages(write_images(tmp_path / "images"), tmp_path / "work")
    page.paint(0, 1)
    models = tmp_path / "work" / "models"
    models.mkdir()
    model_file.save(stack, models / "model-1.hedge")
    before = (models / "model-1.hedge").read_bytes()
    done = [page.long_jobs.train(silent) for _ in range(2)]
    assert [each["files"][0]["name"] for each in done] == ["model-2.hedge", "model-3.hedge"]
    assert (models / "model-1.hedge").read_bytes() == before
    for each in done:
        output = Path(shlex.split(each["commands"][0])[-1])
        assert output.parent == models
        assert not output.exists()


def test_a_run_of_a_command_that_waits_to_be_resumed_is_not_discarded(tmp_path, pages):
    page = pages(write_images(tmp_path / "images"), tmp_path / "work")
    page.paint(0, 1)
    state = tmp_path / "work" / "models" / "model-1.hedge.work"
    state.mkdir(parents=True)
    (state / "run.txt").write_text("0" * 64 + "\n")
    with pytest.raises(InputError) as problem:
        page.long_jobs.improve("refine", silent)
    assert_one_sentence(problem, state / "run.txt", "--project")
    assert (state / "run.txt").exists()


class TrainedBefore:
    """Stands for `jobs.train`: no training, but a model file and the record of stages."""

    def __init__(self, stack, stages):
        self.trained = Trained(stack, stages)

    def __call__(self, project, output, report, also=(), **options):
        self.options = options
        return replace(self.trained, n_bytes=model_file.save(self.trained.model, output))


STACK, REFINED = Stage("stack", 0.5, 0.6, 1.0), Stage("refinement", 0.6, 0.7, 1.0)


def test_the_commands_name_the_options_of_the_model_and_a_new_file(tmp_path, pages, stack, monkeypatch):
    page = pages(write_images(tmp_path / "images"), tmp_path / "work")
    page.paint(0, 1)
    monkeypatch.setattr(long_jobs, "train", TrainedBefore(stack, [STACK, REFINED]))
    done = page.long_jobs.improve("refine", silent)
    words = shlex.split(done["commands"][0])
    assert words[words.index("--effort") + 1] == "good"
    assert Path(words[-1]) == tmp_path / "work" / "models" / "model-1-again.hedge"
    assert shlex.split(done["commands"][1])[2] == str(tmp_path / "work" / "models" / "model-1.hedge")
    assert page.project.current_model.name == "refined forest"
    monkeypatch.setattr(long_jobs, "train", TrainedBefore(stack, [STACK, replace(REFINED, kept=False)]))
    assert "was not better" in page.long_jobs.improve("refine", silent)["text"]


def test_the_score_is_that_of_the_last_level_of_the_model(tmp_path, pages, stack, monkeypatch):
    page = pages(write_images(tmp_path / "images"), tmp_path / "work")
    page.paint(0, 1)
    held_out = [{"mean_dice": 0.874, "accuracy": 1.0}] * stack.n_levels + [{"mean_dice": 0.692, "accuracy": 1.0}]
    scored = replace(stack, settings={**stack.settings, "held_out": held_out})  # its last level was dropped
    monkeypatch.setattr(long_jobs, "train", TrainedBefore(scored, []))
    text = page.long_jobs.train(silent)["text"]
    assert "0.874" in text
    assert "0.692" not in text


def test_a_stray_stroke_does_not_lose_a_model(tmp_path, pages):
    page = pages(write_images(tmp_path / "images"), tmp_path / "work")
    project = page.project
    page.paint(0, 1)
    page.long_jobs.train(silent)
    made = project.current_model
    assert made is not None
    page.stray("s1")
    assert project.current_model is None  # the screen follows the paint again
    project.undo_or_redo("undo")
    assert project.current_model == made
    page.stray("s2")
    project.choose_model(made.number)
    page.close()
    again = pages(tmp_path / "images", tmp_path / "work")
    assert again.project.current_model == made
    exported = tmp_path / "work" / "exports" / "1" / "model.hedge"
    again.export("model")
    assert exported.read_bytes() == project.model_file(made.number).read_bytes()
    with pytest.raises(Refused, match="no such model"):
        again.project.choose_model(7)


def test_nothing_painted_is_refused_before_a_folder_is_made(tmp_path, pages):
    page = pages(write_images(tmp_path / "images"), tmp_path / "work")
    with pytest.raises(Refused, match="nothing is painted"):
        page.export("labels", "model")
    assert sorted(os.listdir(tmp_path / "work")) == ["journal.jsonl", "lock", "project.json"]


def test_a_project_file_of_another_program_is_refused_and_stays(tmp_path):
    images = image_files(write_images(tmp_path / "images"))[0]
    (tmp_path / "work").mkdir()
    theirs = tmp_path / "work" / "project.json"
    for text in ('{"version": 1, "images": [], "classes": []}', "[1]", '"hedgerow"'):
        theirs.write_text(text)
        with pytest.raises(InputError) as problem:
            Project(tmp_path / "work", images)
        assert_one_sentence(problem, theirs, "--project")
        assert theirs.read_text() == text


def test_what_would_be_deleted_is_checked_though_nothing_would_be_overwritten(tmp_path, pages):
    page = pages(write_images(tmp_path / "images", 2), tmp_path / "work")
    page.paint(0, 1)
    (tmp_path / "work" / "labels").mkdir()
    write_labels(tmp_path / "work" / "labels" / "a1.png", np.ones((96, 120), np.uint8))
    with pytest.raises(InputError, match=r"a1\.png would be overwritten or deleted"):
        check_label_maps(page.project)
    assert list(files_of(tmp_path / "work", "labels")) == ["labels/a1.png"]
