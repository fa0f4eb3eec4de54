"""The page of a report: its content, read without a browser."""

import base64
import hashlib
import io
import math
import sys
from dataclasses import replace
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow.forest.level_input import LevelPlan
from hedgerow.images.legend import Legend
from hedgerow.memory import megabytes
from hedgerow.predict.tiling import region_outputs
from hedgerow.progress import silent
from hedgerow.report import Curve, Table, inner_layers, measure, write_report
from hedgerow.report import page as report_page
from hedgerow.report.sections import Section
from helpers.files import listing
from helpers.pages import Page
from helpers.refusals import assert_one_sentence

ALWAYS = ["scores", "examples", "images", "confusion", "layers", "calibration", "channels", "offsets", "facts"]
HOSTILE = "<script>alert('&\"')</script> $x_{1$ _a"


@pytest.fixture
def written(tmp_path, unseen):
    """Writes a report, by default on the unseen images: written({"DF": stack}) -> Page."""

    def run(models, images=unseen[0], labels=unseen[1], **options):
        path = tmp_path / "report.html"
        write_report(path, models, images, labels, **{"title": "A report", "progress": silent, **options})
        return Page(path)

    return run


@pytest.fixture
def three(stack, refined, example):
    return {"DF": stack, "ConvNet": refined, "MB2": hr.to_forest(refined, example.images, "leaf_mean")}


def test_a_page_of_a_stack_its_network_and_the_way_back(written, three, unseen, tmp_path):
    page = written(
        three,
        about="Three regions.",
        background=CLASSES[0],
        tables=[
            Table("Kinds of split", ("kind", "Dice", "n"), (("soft", 0.12345, 1200), ("tanh", None, 3)), "one seed")
        ],
        curves=[
            Curve("Learning", "images", "Dice", {"ours": [(1, 0.2, 0.1), (2, 0.31, 0)]}, log_x=True, note="of two")
        ],
        timings={"growing": 1.5, "refining": 150.0},
        settings={"seed": 3, "nested": {"inner": [1, 2]}},
    )
    assert page.sections == [*ALWAYS[:3], "levels", "training", *ALWAYS[3:-1], "more", "facts"]
    for name, model in three.items():
        scores = hr.evaluate(model, *unseen)
        assert name in page.text
        assert megabytes(hr.save(model, tmp_path / "model.hedge")) in page.text
        means = scores.mean_dice, scores.mean_iou, scores.accuracy, scores.balanced_accuracy
        for score in (*means, scores.balanced_accuracy_without(CLASSES[0])):
            assert f" {score:.3f} " in page.text
        assert all(f"{score:.3f}" in page.text for score in (*scores.dice, *scores.iou))
    for text in ("Three regions.", "0.123", "1,200", "–", "one seed", "2 s", "2 min 30 s", "nested.inner 1, 2"):
        assert text in page.text, text
    assert "Learning: Dice over images; ours ends at 0.31" in [image["alt"] for image in page.every("img")]


def test_a_section_is_a_function_and_a_line(written, stack, monkeypatch):
    def summary(comparison):
        return [Section("mine", "My <section>", f"There are {len(comparison.models)} model(s).")]

    monkeypatch.setattr(report_page, "SECTIONS", (*report_page.SECTIONS, summary))
    page = written({"DF": stack})
    assert page.sections[-2:] == ["facts", "mine"]
    assert "My <section> There are 1 model(s)." in page.text
    assert page.every("a")[-1]["href"] == "#mine"


def test_nothing_on_the_page_is_elsewhere(written, three):
    page = written(three)
    assert len(page.addresses) > 20
    assert all(address.startswith(("data:", "#")) for address in page.addresses)
    assert "url(" not in page.css
    assert "@import" not in page.css
    assert not page.every("iframe")
    inner = [unquote(address) for address in page.addresses if address.startswith("data:image/svg")]
    assert len(inner) > 8
    for text in inner:  # a chart refers only to itself; namespaces are names, not addresses
        for quote_mark in ('href="', "url("):
            places = text.split(quote_mark)[1:]
            assert all(place.startswith(("#", "data:")) for place in places), quote_mark


def test_the_only_script_is_the_one_that_sorts(written, stack):
    page = written({"DF": stack})
    (script,) = page.scripts
    assert "aria-sort" in script
    assert not page.every("button")  # the script makes them: without it nothing looks as if it could be clicked
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rule = next(meta["content"] for meta in page.every("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in rule
    assert f"script-src 'sha256-{digest}'" in rule
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_every_picture_is_described_and_has_a_size(written, three):
    page = written(three)
    pictures = page.every("img")
    assert len({picture["alt"] for picture in pictures}) == len(pictures)
    for picture in pictures:
        assert len(picture["alt"]) > 15
        assert int(picture["width"]) > 0
        assert int(picture["height"]) > 0
        assert picture["src"].startswith(("data:image/png;base64,", "data:image/webp;base64,", "data:image/svg+xml,"))


def test_links_of_the_page_lead_to_its_sections(written, three):
    page = written(three)
    links = [a["href"].removeprefix("#") for a in page.every("a")]
    assert links == page.sections


def test_names_are_shown_as_text(written, stack):
    page = written(
        {HOSTILE: stack},
        title=HOSTILE,
        about=HOSTILE,
        names=[HOSTILE, "b"],
        class_names={CLASSES[0]: HOSTILE, CLASSES[1]: ""},
        tables=[Table(HOSTILE, (HOSTILE,), ((HOSTILE,),), HOSTILE)],
        curves=[Curve(HOSTILE, HOSTILE, HOSTILE, {HOSTILE: [(1, 1, 1)], "_b": [(2, 3, 0)]}, note=HOSTILE)],
        timings={HOSTILE: 1},
        settings={HOSTILE: HOSTILE},
    )
    assert len(page.every("script")) == page.source.count("<script") == 1
    assert page.text.count("<script>alert(") > 10
    for address in page.addresses:
        assert "<script" not in unquote(address)


def test_one_to_six_models(written, stack, net, blurred_net):
    models = {"DF": stack, "other": stack, "soft": hr.to_forest(net, method="soft"), "net": net, "dull": blurred_net}
    models["MB1"] = hr.to_forest(net, method="weights")
    for n in (1, 2, 6):
        some = dict(list(models.items())[:n])
        page = written(some)
        pictures = [picture["alt"] for picture in page.every("img")]
        assert sum(" errs; " in alt for alt in pictures) == n * 2  # best and worst of two images
        assert ("gain over forest (DF)" in page.text) == (n > 1)
        assert set(ALWAYS) <= set(page.sections)
        confused = [alt.removeprefix("Confusion matrix of ") for alt in pictures if alt.startswith("Confusion")]
        assert sorted(alt.partition(";")[0] for alt in confused) == sorted(page.models)
        assert ("Confusion matrices of the other 5 models" in page.text) == (n == 6)


def test_models_have_plain_names_beside_their_own(written, net, stack, unseen):
    models = {"DF": stack, "ConvNet": net, "MB1": hr.to_forest(net, method="weights"), "my forest": stack}
    page = written(models)
    assert page.models == ["forest (DF)", "network (ConvNet)", "forest again (MB1)", "my forest"]
    pictures = " ".join(picture["alt"] for picture in page.every("img"))
    for name in page.models:
        assert pictures.count(name) > 4, name
    for text in ("grown from labelled images: 2 levels of 3 trees", "not trained further", "the network's weights"):
        assert text in page.text, text
    headline = f"The forest (DF) reaches a mean Dice of {hr.evaluate(stack, *unseen).mean_dice:.3f}"
    assert headline in page.text
    assert "were trained on" not in page.text


def test_images_that_a_model_was_trained_on_are_said(written, stack, example, unseen):
    pairs = [[*example.images[:2], *unseen[0]], [*example.labels[:2], *unseen[1]]]
    assert (
        "The model was trained on 2 of these images, so the scores are too high." in written({"DF": stack}, *pairs).text
    )


def test_models_whose_labels_would_coincide_keep_their_names(written, stack):
    assert written({"DF": stack, "forest (DF)": stack}).models == ["DF", "forest (DF)"]


def test_the_forests_of_a_network_come_first(written, refined, stack, unseen):
    page = written({"ConvNet": refined})
    assert page.text.index(f"{hr.evaluate(stack, *unseen).mean_dice:.3f}") > 0
    assert "gain over forest (DF)" in page.text
    assert "gain over" not in written({"mine": stack}).text


def test_one_image_of_two_classes_partly_labelled(written, tiny_config):
    image, labels = draw(3, classes=(4, 9, 4))
    scribbled = np.full_like(labels, 255)
    scribbled[::3] = labels[::3]
    stack = hr.fit_stack([image], [labels], replace(tiny_config, n_levels=1))
    page = written({"DF": stack}, [image], [scribbled])
    assert page.sections == ALWAYS
    assert "no label" in page.text
    assert "The image: image 1" in page.text
    assert "Worst image" not in page.text
    assert "no label" not in written({"DF": stack}, [image], [labels]).text


def test_classes_have_their_names_everywhere(written, stack):
    named = {value: f"tissue {value}" for value in CLASSES}
    page = written({"DF": stack}, class_names=named, background=CLASSES[1])
    alts = " ".join(picture["alt"] for picture in page.every("img"))
    assert "without tissue 77" in page.text
    assert not any(f"class {value}" in page.text + alts for value in CLASSES)


def test_names_and_colours_of_the_model_are_used_and_names_of_the_page_come_first(written, stack):
    colour = (1, 2, 3)
    legend = Legend({value: f"tissue {value}" for value in CLASSES[:2]}, {CLASSES[0]: colour})
    page = written({"DF": replace(stack, legend=legend)}, class_names={CLASSES[1]: "bone"})
    alts = " ".join(picture["alt"] for picture in page.every("img"))
    charts = [unquote(picture["src"]) for picture in page.every("img") if "svg" in picture["src"]]
    (confusion,) = [text for text in charts if "true class" in text]
    for text in ("tissue 3", "bone", "200"):
        assert text in page.text
        assert text in confusion
    assert "tissue 77" not in page.text + alts + confusion
    assert "#010203" in confusion
    assert "background:#010203" in page.css
    truth = next(picture for picture in page.every("img") if picture["alt"].endswith("the true classes, by colour"))
    shown = Image.open(io.BytesIO(base64.b64decode(truth["src"].partition(",")[2]))).convert("RGB")
    assert colour in {value for _, value in shown.getcolors()}


def test_all_images_are_listed_the_worst_first(written, stack):
    drawn = [draw(seed) for seed in range(60, 80)]
    shifts = np.random.default_rng(0).permutation(20)
    spoilt = [(image, np.roll(labels, shift, axis=1)) for (image, labels), shift in zip(drawn, shifts, strict=True)]
    names = [f"photo_{k}.png" for k in range(20)]
    images, labels = zip(*spoilt, strict=True)
    page = written({"DF": stack}, images, labels, names=names)
    dice = [hr.evaluate(stack, [one], [other]).mean_dice for one, other in spoilt]
    order = np.argsort(dice, kind="stable")
    listed = page.text[page.text.index("All images The mean Dice") :]
    places = [listed.index(f"{names[k]} {dice[k]:.3f} ") for k in order]
    assert places == sorted(places)
    assert "The other 10 images" in page.text
    ends = " ".join(f"{end:.3f}" for end in (min(dice), np.median(dice), max(dice)))
    assert f"forest (DF) {ends}" in listed
    assert "The other" not in written({"DF": stack}, images[:13], labels[:13]).text


def test_one_image_has_no_spread(written, stack, unseen):
    assert "lowest" not in written({"DF": stack}, unseen[0][:1], unseen[1][:1]).text


def test_every_model_runs_once_on_every_image(written, three, monkeypatch, unseen):
    """After a corner to warm up, each model predicts each image once; models that share features compute them once."""
    ran, computed = [], []

    def counted(model, planes, *rest):
        ran.append((id(model), planes.shape))
        return region_outputs(model, planes, *rest)

    def plan(model, planes, *rest):
        computed.append(planes.shape)
        return LevelPlan(model, planes, *rest)

    monkeypatch.setattr(measure, "WARM_UP", 8)
    for module in (measure, inner_layers):
        monkeypatch.setattr(module, "region_outputs", counted)
    monkeypatch.setattr(measure, "LevelPlan", plan)
    written(three)
    whole = [model for model, shape in ran if shape[1:] == unseen[0][0].shape]
    assert sorted(whole) == sorted(2 * [id(model) for model in three.values()])
    assert len(computed) == 2


def test_forests_of_a_network_that_are_not_among_the_models_are_drawn_too(written, refined, stack, tiny_config):
    image, labels = draw(9)
    other = hr.fit_stack([image], [labels], tiny_config)
    page = written({"DF": other, "ConvNet": refined})
    assert "next to layers of the network" in " ".join(picture["alt"] for picture in page.every("img"))


def test_typical_best_and_worst_are_shown(written, stack):
    drawn = [draw(seed) for seed in range(60, 63)]
    spoilt = [(image, np.roll(labels, shift, axis=1)) for (image, labels), shift in zip(drawn, (4, 0, 9), strict=True)]
    page = written({"DF": stack}, *zip(*spoilt, strict=True), names=["mid", "good", "bad"])
    for text in ("Typical image: mid", "Best image: good", "Worst image: bad"):
        assert text in page.text


@pytest.mark.parametrize("kind", ["channels", "depth"])
def test_other_features(written, tiny_config, kind):
    image, labels = draw(0)
    own = np.stack([image, image // 2]) if kind == "channels" else 1500 + image.astype(np.uint16)
    stack = hr.fit_stack([own], [labels], replace(tiny_config, features=kind, sigmas=(1.0,)))
    page = written({"DF": stack}, [own], [labels])
    assert ("at one metre" in page.text) == (kind == "depth")
    assert set(ALWAYS) <= set(page.sections)


def test_a_class_that_never_occurs_has_no_score(written, stack):
    image, labels = draw(5)
    page = written({"DF": stack}, [image[:, :8]], [labels[:, :8]])
    assert math.isnan(hr.evaluate(stack, [image[:, :8]], [labels[:, :8]]).dice[2])
    assert " – " in page.text


def test_images_are_taken_one_at_a_time(written, stack, unseen):
    class Counting(list):
        def __iter__(self):
            raise AssertionError("all images at once")

    written({"DF": stack}, Counting(unseen[0]), Counting(unseen[1]))


def test_progress_is_reported_and_can_stop_the_work(written, stack, tmp_path):
    class Enough(Exception):
        pass

    def report(what, done, total):
        assert done <= total
        if what == "drawing":
            raise Enough

    with pytest.raises(Enough):
        written({"DF": stack}, progress=report)
    assert listing(tmp_path) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"models": {}}, ["no model"]),
        ({"background": 4}, ["background is 4", "3, 77, 200"]),
        ({"images": [], "labels": []}, ["0 image(s)"]),
        ({"labels": []}, ["2 image(s)", "0 label map(s)"]),
        ({"names": ["a"]}, ["1 name(s)"]),
        ({"labels": [np.zeros((24, 32), int)] * 2}, ["image 1", "unknown class"]),
        ({"labels": [np.full((24, 32), 255)] * 2}, ["image 1", "no labelled pixel"]),
        ({"images": [np.zeros((24, 31))] * 2}, ["image 1", "24 rows x 31 columns"]),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_reported_is_refused_first(written, stack, tmp_path, options, words):
    def never(what, done, total):
        raise AssertionError("work began")

    with pytest.raises(hr.InputError) as problem:
        written(**{"models": {"DF": stack}, "progress": never, **options})
    assert_one_sentence(problem, *words)
    assert listing(tmp_path) == {}


def test_models_of_other_classes_are_refused(written, stack, tiny_config):
    image, labels = draw(0, classes=(1, 2, 3))
    with pytest.raises(hr.InputError) as problem:
        written({"DF": stack, "else": hr.fit_stack([image], [labels], replace(tiny_config, n_levels=1))})
    assert_one_sentence(problem, "else", "1, 2, 3", "3, 77, 200")


def test_models_of_other_images_are_refused(written, stack, tiny_config):
    image, labels = draw(0)
    own = hr.fit_stack([image[None]], [labels], replace(tiny_config, n_levels=1, features="channels"))
    colour = hr.fit_stack([np.stack([image] * 3, axis=2)], [labels], replace(tiny_config, n_levels=1))
    for other, words in ((own, ["1 channel(s) (planes)"]), (colour, ["3 channel(s) (picture)"])):
        with pytest.raises(hr.InputError) as problem:
            written({"DF": stack, "else": other})
        assert_one_sentence(problem, "else", "of 1 (picture)", *words)


def test_a_place_that_cannot_be_written_is_refused_first(stack, unseen, tmp_path):
    (tmp_path / "taken").mkdir()
    for place, word in (("taken", "is a folder"), ("missing/report.html", "missing")):
        with pytest.raises(hr.InputError) as problem:
            write_report(tmp_path / place, {"DF": stack}, *unseen, title="", progress=silent)
        assert_one_sentence(problem, word)
    assert listing(tmp_path) == {}


def test_a_broken_network_is_refused(written, stack, tmp_path):
    import torch

    net = hr.to_convnet(stack)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(math.nan)
    with pytest.raises(hr.ModelError) as problem:
        written({"DF": stack, "ConvNet": net})
    assert_one_sentence(problem, "NaN", "refine")
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named_with_the_remedy(written, stack, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(hr.HedgerowError) as problem:
        written({"DF": stack})
    assert_one_sentence(problem, package, "pip install '.[net]'")
