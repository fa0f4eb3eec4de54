"""The page of a report: what it holds, read without a browser."""

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import hedgerow as hr  # noqa: E402
from hedgerow.progress import silent  # noqa: E402
from hedgerow.report import Curve, Table, write_report  # noqa: E402


class Page(HTMLParser):
    """Elements by tag with their attributes, and all text."""

    def __init__(self, path):
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements, self.texts = [], []
        self.feed(self.source)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    def every(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))

    @property
    def sections(self):
        return [attributes["id"] for attributes in self.every("section")]


@pytest.fixture
def written(tmp_path, unseen):
    """Writes a report on the unseen images: written({"DF": stack}) -> Page."""

    def run(models, images=unseen[0], labels=unseen[1], **options):
        path = tmp_path / "report.html"
        write_report(path, models, images, labels, **{"title": "A report", "progress": silent, **options})
        return Page(path)

    return run


def test_a_page_of_a_stack_its_network_and_the_way_back(written, stack, refined, example):
    models = {"DF": stack, "ConvNet": refined, "MB2": hr.to_forest(refined, example.images)}
    page = written(
        models,
        tables=[Table("Splits", ("kind", "Dice"), (("soft", 0.12345), ("tanh", None)), "of one seed")],
        curves=[Curve("Learning", "images", "Dice", {"ours": [(1, 0.2, 0.1), (2, 0.3, 0)]})],
        timings={"growing": 1.5},
        settings={"seed": 3},
    )
    expected = ["scores", "examples", "levels", "training", "confusion", "layers", "calibration", "channels", "offsets"]
    assert page.sections == [*expected, "more", "facts"]
    for name, model in models.items():
        assert name in page.text
        assert f"{hr.evaluate(model, *page_images(written)).mean_dice:.3f}" in page.text
    assert "0.123 " in page.text
    assert "1.5 s" in page.text


def page_images(written):
    from conftest import draw

    drawn = [draw(seed) for seed in (50, 51)]
    return [image for image, _ in drawn], [labels for _, labels in drawn]
