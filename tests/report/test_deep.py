"""A deep stack on the page, in the figure of `look` and on a card."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import hedgerow as hr
from hedgerow.deep import deepstack
from hedgerow.images.metrics import Scores, confusion
from hedgerow.images.regions import Region
from hedgerow.progress import silent
from hedgerow.report import measure, write_report
from hedgerow.report.figures import layer_rows
from hedgerow.report.page import with_base_models
from helpers import browser
from helpers.deep import pictures, small_deep
from helpers.pages import Page

THREE = ["forest (DF)", "network (ConvNet)", "deep stack (Deep)"]


@pytest.fixture(scope="module")
def deep():
    return small_deep(*pictures())


@pytest.fixture(scope="module")
def unseen_discs():
    return pictures(2, (29, 37), seed=5)


@pytest.fixture
def written(tmp_path, unseen_discs):
    """Writes a report: written({"Deep": deep}) -> Page."""

    def run(models):
        write_report(tmp_path / "report.html", models, *unseen_discs, title="A report", progress=silent)
        return Page(tmp_path / "report.html")

    return run


def test_alone_it_brings_its_network_and_its_forests(written, deep, unseen_discs):
    page = written({"Deep": deep})
    assert page.models == THREE
    for model in (deep.stack, deep.base, deep):
        assert f" {hr.evaluate(model, *unseen_discs).mean_dice:.3f} " in page.text
    assert "a weighted mean of the output of 4 convolutional networks" in page.text
    assert "How deep stack (Deep) got its convolutional level" in page.text
    alts = [picture["alt"] for picture in page.every("img")]
    assert any("next to layers of the network" in alt for alt in alts)


def test_what_each_level_and_member_is_worth(written, deep, unseen_discs):
    page = written({"Deep": deep})
    assert page.sections[page.sections.index("levels") + 1] == "members"
    table = page.text[page.text.index("What the convolutional level adds The last level") :]

    def dice(model):
        return f"{hr.evaluate(model, *unseen_discs).mean_dice:.3f}"

    for name in ("alone", "reading"):
        alone = replace(deep, nets={name: deep.nets[name]}, weights={name: 1.0})
        assert f" {name} {dice(alone)} " in table
        assert f" 0.400 {deep.record.scores[name]:.3f} " in table
    assert f" network, level 2 {dice(deep.base)} " in table
    assert f" forest, level 2 {dice(deep.stack)} " in table
    assert f" all together {dice(deep)} " in table
    first = [output[0].argmax(axis=0) for output in map(deep.stack.level_outputs, unseen_discs[0])]
    targets = [np.searchsorted(deep.classes, labels).astype(np.uint8) for labels in unseen_discs[1]]
    both = sum(confusion(target, labels.astype(np.uint8), 3) for target, labels in zip(targets, first, strict=True))
    assert f" forest, level 1 {Scores(deep.classes, both).mean_dice:.3f} " in table
    assert "Alone: 2 U-Nets on the image. Reading: 2 U-Nets on the image and the stack's class probabilities." in table


def test_tiles_do_not_change_what_members_score(written, deep, monkeypatch):
    def table():
        page = written({"Deep": deep})
        return page.text[page.text.index("level or member") :].partition("Alone:")[0]

    monkeypatch.setattr(deepstack, "UNET_TILE", 16)
    whole = table()
    monkeypatch.setattr(measure, "tiles", lambda model, size: Region(0, size[0], 0, size[1]).tiles(12))
    assert table() == whole


def test_only_what_is_missing_is_added(deep):
    again = replace(deep)
    assert list(with_base_models({"Deep": deep, "again": again})) == ["DF", "ConvNet", "Deep", "again"]
    assert list(with_base_models({"DF": deep.stack, "Deep": deep})) == ["DF", "ConvNet", "Deep"]
    assert list(with_base_models({"Deep": deep, "DF": deep.stack})) == [
        "Deep",
        "ConvNet",
        "DF",
    ]  # gains are over the first
    assert list(with_base_models({"DF": deep.stack, "ConvNet": deep.base, "Deep": deep})) == ["DF", "ConvNet", "Deep"]
    assert list(with_base_models({"net": deep.base, "Deep": deep})) == ["DF", "net", "Deep"]
    assert list(with_base_models({"ConvNet": deep})) == ["DF", "ConvNet"]


def test_without_its_forests_the_table_has_none(written, deep):
    images, labels = pictures(2, seed=9)
    other = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2, sigmas=(1.0,)))
    page = written({"DF": other, "ConvNet": deep.base, "Deep": deep})
    assert "forest, level" not in page.text
    assert "network, level 1" in page.text


def test_models_without_a_convolutional_level_have_no_such_section(written, deep):
    assert "members" not in written({"ConvNet": deep.base}).sections


def test_look_draws_the_convolutional_level_last(deep, unseen_discs):
    figure = hr.look(deep, unseen_discs[0][0], truth=unseen_discs[1][0]).figure
    _, rows = layer_rows(deep, unseen_discs[0][0])
    assert [" ".join(row.name) for row in rows] == [
        "forest DF level 1", "network ConvNet H3", "forest DF level 2", "network ConvNet output",
        "convolutional Deep level 3",
    ]  # fmt: skip
    shown = [deep.stack.level_outputs(unseen_discs[0][0])[1], deep.base.predict_proba(unseen_discs[0][0])]
    for row, output in zip(rows[2:], [*shown, deep.predict_proba(unseen_discs[0][0])], strict=True):
        np.testing.assert_array_equal(row.level.maps, output)
    figure.canvas.draw()
    texts = {text.get_text(): text.get_window_extent(figure.canvas.get_renderer()) for text in figure.texts}
    pictures_drawn = [image.get_window_extent() for image in figure.axes[0].images]
    name = texts["convolutional"]
    overlaps = [
        (min(name.x1, box.x1) - max(name.x0, box.x0), min(name.y1, box.y1) - max(name.y0, box.y0))
        for box in pictures_drawn
    ]
    assert all(min(overlap) < 1 for overlap in overlaps)


def test_the_card_shows_members_weights_and_scores(deep):
    html = deep._repr_html_()
    for text in ("DeepStack", "3 levels, the last convolutional, 3 classes", "0.400", "2 U-Nets", "2–4–8", "StackNet"):
        assert text in html, text
    for score in deep.record.scores.values():
        assert f"{score:.3f}" in html
    assert "held out: 5 images" in html
    assert f"receptive field of all levels: {deep.receptive_field} px" in html
    assert "script" not in html


def test_the_card_of_one_that_scored_nothing(deep):
    bare = replace(deep, record=type(deep.record)())
    assert "–" in bare._repr_html_()


@pytest.mark.skipif(browser.CHROMIUM is None or browser.DRIVER is None, reason="needs Chromium and its driver")
def test_the_page_fits_wide_and_narrow(written, deep, tmp_path):
    written({"Deep": deep})
    with browser.browsing() as chromium:
        for width in (1400, 360):
            chromium.open((tmp_path / "report.html").as_uri(), width)
            assert chromium.run("return document.documentElement.scrollWidth") <= width
            assert chromium.run("return document.querySelectorAll('#members tbody tr').length") == 7
            assert chromium.complaints() == []
