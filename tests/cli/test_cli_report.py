"""`hedgerow report`."""

import os

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import hedgerow as hr
from hedgerow.files import write_text
from hedgerow.jobs.reporting import unique_names
from helpers.files import listing, unchanged, write
from helpers.pages import Page
from helpers.refusals import assert_refused


@pytest.fixture
def report(hedgerow, place):
    """Reports on the images of the folder: report(model, ...) -> Finished, the page in report.html."""
    return lambda model, *options, output="report.html": hedgerow(
        "report", model, place / "images", place / "labels", "-o", place / output, *options
    )


def test_a_network_its_forests_and_the_way_back(report, net_file, refined, example, place):
    hr.save(hr.to_forest(refined, example.images, "leaf_mean"), place / "small.hedge")
    finished = report(net_file, "--also", place / "small.hedge", "--background", 3, "--title", "Three <models>")
    assert finished.code == 0, finished.err
    assert "2 image(s)" in finished.out
    page = Page(place / "report.html")
    for text in (
        "Three <models>",
        "DF",
        "ConvNet",
        "forest again (MB2)",
        "without class 3",
        "a0.png",
        "gain over forest (DF)",
    ):
        assert text in page.text, text
    assert str(place) not in page.source
    for model in (refined.stack, refined):
        assert f"{hr.evaluate(model, example.images, example.labels).mean_dice:.3f}" in page.text


def test_models_are_named_by_what_they_are(stack, net, place):
    (place / "sub").mkdir()
    backs = [hr.to_forest(net, method=method) for method in ("weights", "soft")]
    files = [place / name for name in ("a.hedge", "b.hedge", "c.hedge", "d.hedge")]
    assert unique_names(files, [stack, net, *backs]) == ["DF", "ConvNet", "MB1", "soft"]
    same = [place / "a.hedge", place / "sub" / "a.hedge", place / "b.hedge"]
    assert unique_names(same, [stack] * 3) == [f"DF, {same[0]}", f"DF, {same[1]}", "DF, b.hedge"]


def test_the_same_model_twice_is_shown_once(report, trained_place):
    model = trained_place / "model.hedge"
    assert report(model, "--also", model).code == 0
    assert "gain over" not in Page(trained_place / "report.html").text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--background", 4), ["background is 4", "3, 77, 200"]),
        (("--also", "missing.hedge"), ["missing.hedge"]),
    ],
    ids=str,
)
def test_bad_options_are_refused(report, trained_place, options, words):
    before = listing(trained_place)
    assert_refused(report(trained_place / "model.hedge", *options), *words)
    unchanged(trained_place, before)


@pytest.mark.parametrize("output", ["images", "images/a0.png", "model.hedge", "none/report.html"])
def test_bad_places_are_refused(report, trained_place, output):
    before = listing(trained_place)
    assert_refused(report(trained_place / "model.hedge", output=output), output)
    unchanged(trained_place, before)


def test_a_bad_image_is_named_and_nothing_is_left(report, trained_place, example):
    write(trained_place / "images" / "a1.png", example.images[0][:, :-1])
    before = listing(trained_place)
    assert_refused(report(trained_place / "model.hedge"), "a1.png")
    unchanged(trained_place, before)


def test_an_old_page_stays_when_a_new_one_fails(report, trained_place, monkeypatch):
    from hedgerow.report import page

    write_text(trained_place / "report.html", "an old page")
    before = listing(trained_place)

    def fail(values):
        raise hr.InputError("the page failed.")

    monkeypatch.setattr(page, "render", fail)
    assert_refused(report(trained_place / "model.hedge"), "the page failed")
    unchanged(trained_place, before)


def test_names_that_are_not_utf8_are_shown_as_far_as_they_can_be(report, trained_place):
    for folder in ("images", "labels"):
        os.rename(trained_place / folder / "a0.png", os.fsencode(trained_place / folder) + b"/a\xff\xfe0.png")
    finished = report(trained_place / "model.hedge")
    assert finished.code == 0, finished.err
    assert "a??0.png" in (trained_place / "report.html").read_text(encoding="utf-8")
