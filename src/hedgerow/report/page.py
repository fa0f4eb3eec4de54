"""The report: checks its input, measures the models, makes the sections of the page, and writes one HTML file."""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hedgerow import __version__, extras
from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.errors import InputError, printable
from hedgerow.files import PathLike, atomic_path, check_folder_writable
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.classes import check_background
from hedgerow.images.given import given_pairs
from hedgerow.images.labelled import Images
from hedgerow.predict.evaluate import labelled_for
from hedgerow.predict.protocol import refuse_volumes
from hedgerow.progress import Report, reporting
from hedgerow.report import examples, facts, gains, inner_layers, mistakes, scores, splits
from hedgerow.report.layer_maps import choose_crop
from hedgerow.report.measure import measure
from hedgerow.report.naming import class_display, labelled_models
from hedgerow.report.sections import Comparison, Curve, ReportTable, Section

SECTIONS: tuple[Callable[[Comparison], list[Section]], ...] = (
    scores.model_scores,
    examples.image_examples,
    scores.image_scores,
    gains.per_level,
    gains.per_member,
    gains.refinement,
    mistakes.confusion,
    inner_layers.inner_layers,
    mistakes.calibration,
    splits.split_choices,
    facts.more_results,
    facts.how_it_was_made,
)
"""The sections of the page, in order. Each function takes a Comparison and returns the sections to show, or none."""


def write_report(
    path: PathLike,
    models: Mapping[str, AnyModel],
    images: Images,
    labels: Images,
    *,
    title: str,
    about: str = "",
    names: Sequence[str] | None = None,
    background: int | None = None,
    class_names: Mapping[int, str] | None = None,
    tables: Sequence[ReportTable] = (),
    curves: Sequence[Curve] = (),
    timings: Mapping[str, float] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Report | None = None,
) -> None:
    """Compare models on labelled images that they have not seen, and write one self-contained HTML file.

    models:      by name, in order; gains are relative to the first. Without a grown forest, the forests of the first
                 network are added as "DF"; if a deep stack is the only network, the network in it as "ConvNet"
    images:      each (H,W[,C]), or (F,H,W) for models of the user's own channels, read one at a time; or one image
                 with its labels; or files of both, each a folder, a file or a glob
    labels:      each (H,W) with class values, and the first model's unlabelled value where there is no label
    names:       of the images
    background:  the class that is shown dark and left out of a second balanced accuracy
    class_names: by class value; they replace those of the models. A class without a name is shown by its value
    tables, curves: more results to show
    timings:     seconds that making the models took, by step
    settings:    of these steps, nested or not

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> hr.write_report("report.html", {"DF": stack}, images, labels, title="Two embryos", background=0)
    """
    for package in ("jinja2", "matplotlib"):
        extras.require(package, "a report")
    models = with_base_models(models)
    check(path, models, background)
    model = next(iter(models.values()))
    given = given_pairs(images, labels, model.features.layout, names, first=1, legend=model.legend or None)
    names = [printable(name) for name in given.names]
    labelled = labelled_for(model, given.images, given.labels, names=names)
    # This reads and checks all images before long work: an invalid one must not end it.
    crop = choose_crop(labelled, labelled.classes)
    with reporting(progress) as report:
        measured = measure(
            labelled_models(models), labelled, crop, lambda done: report("measuring", done, len(labelled))
        )
        report("drawing", 0, 1)
        classes = class_display(labelled.classes, labelled.legend, class_names, background)
        comparison = Comparison(
            measured, labelled, names, classes, crop, background, tables, curves, timings or {}, settings or {}
        )
        sections = [section for make in SECTIONS for section in make(comparison)]
        values = {"headline": scores.headline(comparison), "sections": sections}
        report("drawing", 1, 1)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = render(values | {"title": printable(title), "about": about, "date": date, "version": __version__})
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def with_base_models(models: Mapping[str, AnyModel]) -> dict[str, AnyModel]:
    """The models and those that they came from: the forests of the first network, as "DF", if there is no grown forest,
    and the network in the first deep stack, as "ConvNet", if there is no other network.
    """
    stacks = [model for model in models.values() if isinstance(model, ForestStack)]
    others = [parts_of(model) for model in models.values() if not isinstance(model, ForestStack)]
    completed = dict(models)
    if others and all("mapped_back" in stack.settings for stack in stacks) and "DF" not in models:
        completed = {"DF": others[0][0], **models}
    deep = [model for _, _, model in others if model is not None]
    if deep and len(deep) == len(others) and "ConvNet" not in models:
        items = list(completed.items())
        place = max(next(i for i, (_, model) in enumerate(items) if model is deep[0]), 1)  # the first stays first
        completed = dict([*items[:place], ("ConvNet", deep[0].base), *items[place:]])
    return completed


def check(path: PathLike, models: Mapping[str, AnyModel], background: int | None) -> None:
    """Refuse models that cannot be compared, or a path that cannot be written, before long work."""
    if not models:
        raise InputError("no model was given for the report; give one or more, by name.")
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder; give the name of a file to write, e.g. {Path(path) / 'report.html'}.")
    check_folder_writable(Path(path).parent)
    first_name, first = next(iter(models.items()))
    known = ", ".join(map(str, first.classes))
    for name, model in models.items():
        refuse_volumes(model, "a report")
        if model.classes != first.classes:
            raise InputError(
                f"{name} has the classes {', '.join(map(str, model.classes))} and {first_name} has {known};"
                " compare models of the same classes."
            )
        expected, features = first.features, model.features
        if (features.layout, features.n_inputs) != (expected.layout, expected.n_inputs):
            raise InputError(
                f"{name} was trained on images of {features.n_inputs} channel(s) ({features.layout}) and {first_name}"
                f" on images of {expected.n_inputs} ({expected.layout}); compare models of the same kind of image."
            )
    check_background(background, first.classes, first_name)


def render(values: Mapping[str, Any]) -> str:
    """The page with these values; their text is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("hedgerow.report", "template")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A browser may run only the page's own script, which the page allows by its hash.
    script = loader.get_source(environment, "sort.js")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template("page.html").render(**values, script=script, script_hash=digest)
