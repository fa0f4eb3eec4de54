"""The protocol from end to end: a real server, a real websocket, no browser."""

import io
import json
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hedgerow import jobs
from hedgerow.images.reading import read_image
from hedgerow.io import model_file
from hedgerow.paint import pyramid
from hedgerow.paint.engine import QueuedJob
from hedgerow.paint.image_files import image_files
from hedgerow.paint.project import Project
from hedgerow.scale import sparse_growth
from helpers import paint
from helpers.paint import client_of, drawn, open_project, write_images

SIZE = (300, 280)
LOOK = {"do": "view", "image": 0, "level": 0, "rows": [0, SIZE[0]], "cols": [0, SIZE[1]]}
STROKES = (
    (0, [[20, 20], [80, 30]]),
    (1, [[40, 140], [90, 150]]),
    (0, [[200, 30], [260, 40]]),
    (1, [[60, 220], [20, 240]]),
)


def running(project, **options):
    """A server that does not wait long for a pause."""
    return paint.running(project, pause_seconds=0.05, **options)


@pytest.fixture
def server(tmp_path):
    with running(open_project(tmp_path, 2, SIZE)) as opened:
        yield opened


@pytest.fixture
def client(server):
    return client_of(server)


def painted_two_classes(window, prefix="s", image=0, strokes=STROKES):
    window.say(LOOK | {"image": image})
    for n, (value, points) in enumerate(strokes):
        window.paint(id=f"{prefix}{n}", image=image, value=value, radius=4, points=points)


def test_the_state_of_a_project(client):
    with client.window() as window:
        window.paint()
        state = client.json("/api/project")
    assert (state["title"], state["windows"], state["live"]) == ("project", 1, True)
    assert state["images"][1] == {
        "id": 1, "name": "a1.png", "height": 300, "width": 280, "n_channels": 1, "type": "u1", "low": 0, "high": 255,
        "n_levels": 2, "labels": 0, "pixels": {}, "problem": "",
    }  # fmt: skip
    assert state["images"][0]["labels"] == 1
    assert (state["undo"], state["redo"]) == (1, 0)
    assert state["limits"] == {"radius": 512, "points": 4096, "classes": 64, "fill": 4194304}


def test_tiles_of_the_image_and_of_its_levels(client):
    image = drawn(0, SIZE)[0]
    assert np.array_equal(client.array("/api/images/0/tile/0/1/1"), image[None, 256:, 256:])
    half = np.pad(image, ((0, 0), (0, 0))).reshape(150, 2, 140, 2).astype(int).sum(axis=(1, 3))
    assert np.array_equal(client.array("/api/images/0/tile/1/0/0"), ((half + 2) >> 2)[None])
    status, headers, body = client.get("/api/images/0/thumbnail")
    picture = Image.open(io.BytesIO(body))
    assert (status, headers["content-type"], max(picture.size) <= 160) == (200, "image/png", True)


def test_reading_a_large_image_has_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(pyramid, "ROWS_AT_ONCE", 64)
    opened = running(open_project(tmp_path, 2, SIZE), slow_reading_bytes=1)
    with opened as server, client_of(server).window() as window:
        client = client_of(server)
        assert client.array("/api/images/1/tile/1/0/0") is not None
        first = window.hear("progress", job="pyramid")
        assert (first["part"], first["text"]) == (0, "reading a1.png")
        window.hear("progress", job="pyramid", part=1)
    told = [one["part"] for one in window.heard if one.get("job") == "pyramid"]
    assert told == [0, 0.5, 0.6, 0.7, 0.8, 0.9, 1]  # one step per halved band


def test_strokes_become_labels_and_an_overlay(client):
    with client.window() as window:
        painted_two_classes(window)
        visible = window.hear("overlay", scope="visible")
        assert (visible["image"], visible["level"]) == (0, 0)
        assert visible["region"] == [0, 300, 0, 280]
        whole = window.hear("overlay", scope="whole")
        assert whole["result"] >= visible["result"]
        full = window.hear("overlay", scope="full")
        numbers = window.hear("numbers")
        while numbers["held_out"] is None:
            numbers = window.hear("numbers")
    assert client.array("/api/images/0/labels/0/0/0")[20, 20] == 0
    assert client.array("/api/images/1/labels/0/0/0") is None
    classes = client.overlay(full["result"])
    truth = np.minimum(drawn(0, SIZE)[1], 1)[:256, :256]
    assert np.mean(classes == truth) > 0.9
    sure = client.overlay(full["result"], level=1, size=(150, 140), kind="uncertainty")
    assert np.median(sure) < 100
    proba = [client.overlay(full["result"], kind=f"proba&class={k}") for k in (0, 1, 2)]
    assert np.array_equal(proba[1] > proba[0], classes == 1)
    assert not proba[2].any()
    address = f"/api/images/0/overlay/{full['result']}/0?tiles="
    assert client.get(f"{address}0.0&what=else")[0] == 400
    _, headers, together = client.get(f"{address}0.0,1.1,5.5,0.1")
    assert headers["x-known"] == "1101"
    sizes = (256 * 256, 44 * 24, 256 * 24)
    assert len(together) == sum(sizes)
    assert together[: sizes[0]] == classes.tobytes()
    assert together[sizes[0] + sizes[1] :] == client.overlay(full["result"], (0, 1), (256, 24)).tobytes()
    assert numbers["held_out"] > 0.8
    assert numbers["pixels"].keys() == {"0", "1"}


def test_an_old_result_is_gone(client):
    with client.window() as window:
        painted_two_classes(window)
        first = window.hear("overlay")
        window.hear("overlay", scope="full")
        window.paint(id="more", value=0, points=[[100, 20]])
        window.hear("overlay", scope="visible")
        window.hear("overlay", scope="full")
    assert client.get(f"/api/images/0/overlay/{first['result']}/0?tiles=0.0")[0] == 410


def test_undo_redo_and_reload(client):
    with client.window() as window:
        window.paint(id="a")
        window.paint(id="b", value=0, points=[[80, 80]])
        window.say({"do": "undo"})
        undone = window.hear("painted", id=None)
        assert (undone["undo"], undone["redo"], list(undone["pixels"])) == (1, 1, ["1"])
        window.say({"do": "redo"})
        assert window.hear("painted", id=None)["redo"] == 0
        window.say({"do": "redo"})
        assert window.hear("refused")["why"] == "there is nothing to redo."
    with client.window() as window:
        assert client.json("/api/project")["undo"] == 2


def test_two_windows_are_told_of_each_other(client):
    with client.window() as first, client.window() as other:
        first.hear("windows", n=2)
        first.paint(id="mine")
        assert other.hear("painted")["id"] == "mine"
        other.say({"do": "class", "id": None, "name": "third"})
        assert first.hear("classes")["classes"][2]["name"] == "third"
        painted_two_classes(first)
        overlay = other.hear("overlay", scope="full")
    with client.window() as late:
        assert late.hear("overlay")["result"] >= overlay["result"]


def test_live_off_and_on(client):
    with client.window() as window:
        window.say({"do": "live", "on": False})
        painted_two_classes(window)
        window.say({"do": "next", "image": 0})
        assert window.hear("next", "failed")["say"] == "next"
        assert not [one for one in window.heard if one["say"] == "overlay"]
        window.say({"do": "live", "on": True})
        window.hear("overlay", scope="whole")


def test_nothing_can_be_suggested_or_trained_without_paint(client):
    with client.window() as window:
        window.say({"do": "next"})
        assert "two classes" in window.hear("failed", job="next")["why"]
        window.say({"do": "train"})
        assert "nothing is painted" in window.hear("failed", job="train")["why"]
        window.say(LOOK)
        assert "two classes" in window.hear("numbers")["warnings"][0]


def test_paint_on_one_image_segments_the_other(client):
    with client.window() as window:
        painted_two_classes(window)
        window.hear("overlay", scope="whole", image=0)
        window.say(LOOK | {"image": 1})
        result = window.hear("overlay", scope="whole", image=1)["result"]
    found = client.overlay(result, image=1)
    assert np.mean(found == np.minimum(drawn(1, SIZE)[1], 1)[:256, :256]) > 0.85


def test_one_class_is_not_enough_to_train(client):
    with client.window() as window:
        window.say({"do": "train"})
        assert "nothing is painted yet" in window.hear("failed", job="train")["why"]
        window.paint()
        window.say({"do": "train"})
        assert "only one class is painted" in window.hear("failed", job="train")["why"]


def test_train_gives_the_same_bytes_as_the_command_line(client, server, hedgerow, tmp_path):
    with client.window() as window:
        painted_two_classes(window)
        painted_two_classes(window, "t", 1)
        window.say({"do": "train"})
        done = window.hear("done", "failed", job="train")
    page = client.get("/" + done["files"][0]["address"])[2]
    typed = done["commands"][0].split()
    assert typed[:2] == ["hedgerow", "train"]
    assert Path(typed[2]) == tmp_path / "images"  # all images are painted, so the folder stands for them
    typed[typed.index("-o") + 1] = str(tmp_path / "typed.hedge")
    finished = hedgerow(*typed[1:])
    assert finished.code == 0, finished.err
    assert (tmp_path / "typed.hedge").read_bytes() == page
    assert client.get("/api/exports/0/model-1.hedge")[2] == page


def test_images_that_are_never_held_as_a_whole(tmp_path, hedgerow, monkeypatch):
    limits = (
        *((jobs, "LARGE_IMAGE_PIXELS"), (jobs, "MAX_PIXELS_IN_MEMORY")),
        *((sparse_growth, "LARGE_SET_PIXELS"), (sparse_growth, "LARGE_PIXELS")),
    )
    for module, name in limits:
        monkeypatch.setattr(module, name, 1000)
    with running(open_project(tmp_path, 1, SIZE)) as server:
        client = client_of(server)
        with client.window() as window:
            painted_two_classes(window)
            window.say({"do": "train"})
            done = window.hear("done", "failed", job="train")
            assert done["say"] == "done", done
            window.say({"do": "improve", "how": "refine"})
            assert "Train on all works here" in window.hear("done", "failed", job="improve")["why"]
            window.say({"do": "export", "what": ["labels", "segmentation", "overlays"]})
            exported = window.hear("done", "failed", job="export")
        page = client.get("/" + done["files"][0]["address"])[2]
    labels = tmp_path / "project" / "labels"
    assert [item.name for item in sorted(labels.iterdir())] == ["a0.tif", "classes.toml"]
    assert read_image(labels / "a0.tif")[20, 20] == 0
    train, predict = (line.split() for line in done["commands"])
    finished = hedgerow(*train[1:-1], str(tmp_path / "typed.hedge"))
    assert finished.code == 0, finished.err
    assert "of their pixels are loaded" in finished.out
    assert (tmp_path / "typed.hedge").read_bytes() == page
    assert [item["name"] for item in exported["files"]] == ["labels.zip", "a0.ome.tif"]
    assert "1 image(s) are too large for overlays" in exported["text"]
    assert predict[-1].endswith("predicted-a0.ome.tif")
    assert hedgerow(*predict[1:]).code == 0
    exports = tmp_path / "project" / "exports"
    assert np.array_equal(read_image(next(exports.rglob("a0.ome.tif"))), read_image(predict[-1]))


def test_exports(client, tmp_path):
    with client.window() as window:
        painted_two_classes(window)
        kinds = ["labels", "segmentation", "probabilities", "overlays", "model", "report", "table"]
        window.say({"do": "export", "what": kinds})
        done = window.hear("done", "failed", job="export")
    assert done["say"] == "done", done
    files = {one["name"]: client.get("/" + one["address"])[2] for one in done["files"]}
    assert {name: len(body) for name, body in files.items()} == {one["name"]: one["bytes"] for one in done["files"]}
    inside = {
        name: zipfile.ZipFile(io.BytesIO(body)).namelist() for name, body in files.items() if name.endswith("zip")
    }
    assert inside == {
        "labels.zip": ["a0.png", "classes.toml"],
        "segmentation.zip": ["a0.png", "a1.png"],
        "probabilities.zip": ["a0_proba.tif", "a1_proba.tif"],
        "overlays.zip": ["a0_overlay.png", "a1_overlay.png"],
    }
    labels = zipfile.ZipFile(io.BytesIO(files["labels.zip"])).extract("a0.png", tmp_path)
    assert sorted(np.unique(Image.open(labels))) == [0, 1, 255]
    assert read_image(labels).shape == (*SIZE, 3)  # shown in the colours of the classes
    assert files["objects.csv"].startswith(b"image,")
    assert b"on the strokes that it was trained on" in files["report.html"]
    assert files["model.hedge"][8:].startswith(b'{"__metadata__"')
    assert done["commands"][0].startswith("hedgerow train ")
    assert client.get("/api/exports/1/nothing.zip")[0] == 404


def test_what_is_exported_is_what_is_shown(client, tmp_path):
    with client.window() as window:
        window.say({"do": "view", "image": 0, "level": 0, "rows": [0, SIZE[0]], "cols": [0, SIZE[1]]})
        painted_two_classes(window)
        window.hear("overlay", scope="full")
        window.hear("numbers")  # after the full model has been chosen and scored
        shown = [each for each in window.heard if each["say"] == "overlay"][-1]
        heights, widths = (256, 44), (256, 24)
        tiles = [
            [client.overlay(shown["result"], (row, col), (height, width)) for col, width in enumerate(widths)]
            for row, height in enumerate(heights)
        ]
        window.say({"do": "export", "what": ["segmentation", "model"]})
        done = window.hear("done", "failed", job="export")
    assert shown["model"] == "forest, 1 level, 64 trees"
    on_screen = np.block(tiles)
    files = {each["name"]: client.get("/" + each["address"])[2] for each in done["files"]}
    inside = zipfile.ZipFile(io.BytesIO(files["segmentation.zip"])).extract("a0.png", tmp_path)
    np.testing.assert_array_equal(np.asarray(Image.open(inside)), on_screen)
    (tmp_path / "exported.hedge").write_bytes(files["model.hedge"])
    predicted = model_file.load(tmp_path / "exported.hedge").predict(read_image(tmp_path / "images" / "a0.png"))
    np.testing.assert_array_equal(predicted, on_screen)


def test_a_cancelled_export(client, server, tmp_path):
    """The worker is busy until both messages have been handled, so the export cannot end before it is cancelled."""
    is_handled = threading.Event()
    server.server.session.engine.submit(QueuedJob("train", lambda report: is_handled.wait(30) and None))
    with client.window() as window:
        for n, (value, points) in enumerate(STROKES):
            window.paint(id=f"s{n}", value=value, radius=4, points=points)
        window.say({"do": "export", "what": ["segmentation"]})
        window.say({"do": "cancel", "job": "export"})
        window.paint(id="last")  # messages are handled in order
        is_handled.set()
        ended = window.hear("done", "failed", job="export")
    assert (ended["say"], ended["why"]) == ("failed", "the job was cancelled.")
    assert not (tmp_path / "project" / "exports").exists()


@pytest.mark.parametrize(
    ("kind", "type", "values"), [("uint16", "u2", (0, 40000)), ("float32", "u2", (-3.5, 9.25)), ("bool", "u1", (0, 1))]
)
def test_images_of_other_numbers(tmp_path, kind, type, values):
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(0)
    image = (rng.random((70, 90, 2)) * (values[1] - values[0]) + values[0]).round(2).astype(kind)
    np.save(folder / "two.npy", image)
    with running(Project(tmp_path / "project", image_files(folder)[0])) as server:
        client = client_of(server)
        state = client.json("/api/project")["images"][0]
        tile = client.array("/api/images/0/tile/0/0/0?channels=1")
        ranged = json.loads(client.get("/api/images/0/tile/0/0/0?range=1")[1]["x-range"])
        assert client.get("/api/images/0/thumbnail")[0] == 200
        if type == "u2":
            read = client.json("/api/project")["images"][0]
            assert ranged == [read["low"], read["high"]]
    assert (state["type"], state["n_channels"]) == (type, 2)
    assert tile.shape == (1, 70, 90)
    if kind == "float32":
        low, high = float(image.min()), float(image.max())
        assert np.abs(tile[0] / 65535 * (high - low) + low - image[..., 1]).max() < 1e-3
        assert state["low"] is None  # unknown until the image is read
        assert [len(ends) for ends in ranged] == [2, 2]
    else:
        assert np.array_equal(tile[0], image[..., 1])


def test_an_image_that_vanished_is_told(tmp_path):
    project = Project(tmp_path / "project", image_files(write_images(tmp_path / "images", 2, SIZE))[0])
    (tmp_path / "images" / "a1.png").unlink()
    with running(project) as server:
        client = client_of(server)
        status, _, body = client.get("/api/images/1/tile/0/0/0")
        assert (status, b"no such file" in body) == (404, True)
        with client.window() as window:
            window.paint(image=1)
            window.paint(id="u2", image=1, value=0, points=[[40, 40]])
            window.say(LOOK | {"image": 1})
            assert "no such file" in window.hear("failed", job="segment")["why"]
            painted_two_classes(window, "z")  # the worker continues
            window.hear("overlay", image=0)
