"""`hedgerow back`, and `info` of what it wrote."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.network.mapback import FROM_IMAGES, METHODS, to_forest
from helpers.files import listing, unchanged
from helpers.refusals import assert_refused


@pytest.mark.parametrize("method", METHODS)
def test_back_writes_what_python_gives(hedgerow, net_file, place, refined, example, method):
    finished = hedgerow("back", net_file, place / "images", "-o", place / "forest.hedge", "--method", method)
    assert finished.code == 0, finished.err
    expected = to_forest(refined, example.images if method in FROM_IMAGES else (), method)
    found = hr.load(place / "forest.hedge")
    for image in example.images:
        np.testing.assert_array_equal(found.predict_proba(image), expected.predict_proba(image))
    assert f"votes by {method}" in finished.out
    assert f"by {method}" in hedgerow("info", place / "forest.hedge").out


def test_fitted_votes_are_the_default_and_need_images(hedgerow, net_file, place, refined, example):
    assert hedgerow("back", net_file, place / "images", "-o", place / "forest.hedge").code == 0
    expected = to_forest(refined, example.images, "fitted")
    found = hr.load(place / "forest.hedge")
    np.testing.assert_array_equal(found.levels[-1].votes, expected.levels[-1].votes)
    before = listing(place)
    assert_refused(hedgerow("back", net_file, "-o", place / "other.hedge"), "images")
    unchanged(place, before)


def test_the_tolerance_is_told_in_pixels_that_change(hedgerow, net_file, place, refined, example):
    options = ("--method", "soft", "--tolerance", "0.3")
    finished = hedgerow("back", net_file, place / "images", "-o", place / "forest.hedge", *options)
    assert finished.code == 0, finished.err
    assert hr.load(place / "forest.hedge").tolerance == 0.3
    reports = float(re.search(r"changes the class of ([\d.]+)%", finished.out)[1])
    net = hr.load(net_file)
    net.set_tolerance(0.0)
    rough = to_forest(refined, method="soft", tolerance=0.3)
    pairs = [(net.predict(image), rough.predict(image)) for image in example.images]
    assert reports == pytest.approx(100 * np.mean([a != b for a, b in pairs]), abs=6e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "soft", "--tolerance", "1"), ["tolerance", "1"]),
        (("--method", "weights", "--tolerance", "0.1"), ["tolerance", "soft"]),
    ],
)
def test_tolerances_that_mean_nothing_are_refused(hedgerow, net_file, place, options, words):
    before = listing(place)
    assert_refused(hedgerow("back", net_file, place / "images", "-o", place / "forest.hedge", *options), *words)
    unchanged(place, before)


def test_forests_and_the_networks_own_file_are_refused(hedgerow, net_file, model_file, place):
    before = listing(place)
    refused = hedgerow("back", model_file, place / "images", "-o", place / "forest.hedge")
    assert_refused(refused, model_file, "refine")
    assert_refused(hedgerow("back", net_file, place / "images", "-o", net_file), net_file, "another name")
    assert_refused(hedgerow("back", net_file, place / "none", "-o", place / "forest.hedge"), place / "none")
    unchanged(place, before)
