"""Files of several pages: what was read is said, `--pages` chooses, and what is ambiguous is refused."""

import numpy as np
import pytest

from hedgerow.images.label_files import read_labels
from helpers.files import write
from helpers.refusals import assert_refused


@pytest.fixture
def stacks(place, example):
    """`place`, with a folder of stacks of three pages, of which only the second tells the classes apart."""
    for number, image in enumerate(example.images):
        noise = np.random.default_rng(number).integers(0, 256, (2, *image.shape), dtype=np.uint8)
        write(place / "stacks" / f"a{number}.tif", np.stack([noise[0], image, noise[1]]), metadata=None)
    return place


def test_pages_without_a_word_on_what_they_are_are_refused(train, stacks):
    assert_refused(train(images="stacks"), "a0.tif", "found 3 pages of the same size", "--pages all", "--pages 3")


def test_one_page_or_all_pages_are_read_and_that_is_said(train, hedgerow, stacks):
    found = train("--pages", "2", images="stacks")
    assert found.code == 0, found.err
    assert "a0.tif and 1 more: page 2 of 3\n" in found.out
    predicted = hedgerow(
        "predict", stacks / "model.hedge", stacks / "stacks", "-o", stacks / "out", "--pages", "2", "--format", "png"
    )
    assert predicted.code == 0, predicted.err
    assert predicted.out.count("page 2 of 3") == 1, "said once, not for every file"
    agree = [read_labels(stacks / "out" / f"a{i}.png") == read_labels(stacks / "labels" / f"a{i}.png") for i in (0, 1)]
    assert np.mean(agree) > 0.95
    assert_refused(
        hedgerow("evaluate", stacks / "model.hedge", stacks / "stacks", stacks / "labels", "--pages", "all"), "channel"
    )
    scored = hedgerow("evaluate", stacks / "model.hedge", stacks / "stacks", stacks / "labels", "--pages", "2")
    assert scored.code == 0, scored.err
    assert "pages 1-3 read as 3 channels" in train("--pages", "all", images="stacks").out


@pytest.mark.parametrize("pages", ["0", "4", "two", "2-1", "1,1", ""])
def test_pages_that_are_none_are_refused(train, stacks, pages):
    assert_refused(train("--pages", pages, images="stacks"), "--pages")


def test_networks_take_pages_too(hedgerow, train, trained_place, stacks):
    assert train("--pages", "2", images="stacks").code == 0
    model, net, images, labels = (stacks / name for name in ("model.hedge", "net.hedge", "stacks", "labels"))
    pages = ("--pages", "2")
    refined = hedgerow("refine", model, images, labels, "-o", net, "--config", stacks / "short.toml", *pages)
    assert refined.code == 0, refined.err
    assert "page 2 of 3" in refined.out
    for command in (
        ("back", net, images, "-o", stacks / "small.hedge"),
        ("look", net, images / "a0.tif", "-o", stacks / "inside.png"),
        ("report", net, images, labels, "-o", stacks / "report.html"),
    ):
        assert_refused(hedgerow(*command), "found 3 pages")
        assert hedgerow(*command, *pages).code == 0, command
