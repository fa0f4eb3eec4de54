"""The page: checks before long work, then measures, draws and writes one HTML file."""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow import extras
from hedgerow.deep.parts import parts_of
from hedgerow.errors import InputError, printable
from hedgerow.files import PathLike, atomic_path, check_folder_writable
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.labelled import Images, listed
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import Report, reporting
from hedgerow.report import kinds
from hedgerow.report.contents import contents, extra_results, facts
from hedgerow.report.layers import choose_window
from hedgerow.report.measure import measure
from hedgerow.report.results import Curve, Table
from hedgerow.report.shown import shown_classes

if TYPE_CHECKING:
    from hedgerow.deep.parts import AnyModel


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
    tables: Sequence[Table] = (),
    curves: Sequence[Curve] = (),
    timings: Mapping[str, float] | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: Report | None = None,
) -> None:
    """Compare models on labelled images that they have not seen; write one HTML file that needs no other.

    models:     by name, in order: gains are over the first. If none of them is a forest as grown, the forests of the
                first network are shown too, as "DF"; and beside a deep stack, if there is no network, its own, as
                "ConvNet"
    images:     each (H,W[,C]), or (F,H,W) for models of the user's own channels; read one at a time. Or one image as
                it is, with its labels
    labels:     each (H,W) class values, or the unlabelled value of the first model
    names:      of the images
    background: a class that is shown dark and left out of a second balanced accuracy
    class_names: of class values, in place of those that the models carry; a class without any is shown by its value
    tables, curves: more results, shown as they are
    timings:    seconds of the work that led to the models
    settings:   of that work, nested or not

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> hr.write_report("report.html", {"DF": stack}, images, labels, title="Two embryos", background=0)
    """
    for package in ("jinja2", "matplotlib"):
        extras.require(package, "a report")
    models = with_parts(models)
    check(path, models, background)
    images, labels = listed(images, labels)
    names = [f"image {i}" for i in range(1, len(images) + 1)] if names is None else [printable(name) for name in names]
    labelled = labelled_for(next(iter(models.values())), images, labels, names=names)
    # All images are checked as they are read here: a bad one must not end long work.
    window = choose_window(labelled, labelled.classes)
    known = shown_classes(labelled.classes, labelled.legend, class_names, background)
    with reporting(progress) as report:
        measured = measure(
            kinds.labels(models), labelled, window, lambda done: report("measuring", done, len(labelled))
        )
        report("drawing", 0, 1)
        page = contents(measured, labelled, names, window, known, background)
        report("drawing", 1, 1)
    title = printable(title)
    page |= extra_results(tables, curves) | facts(measured, timings, settings)
    text = render(
        page | {"title": title, "about": about, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    )
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def with_parts(models: Mapping[str, AnyModel]) -> dict[str, AnyModel]:
    """The models; after the forests of the first network if no forests as grown are among them, and with the network
    of the first deep stack if there is no other.
    """
    stacks = [model for model in models.values() if isinstance(model, ForestStack)]
    others = [parts_of(model) for model in models.values() if not isinstance(model, ForestStack)]
    found = dict(models)
    if others and not any("mapped_back" not in stack.settings for stack in stacks) and "DF" not in models:
        found = {"DF": others[0][0], **models}
    deep = [model for _, _, model in others if model is not None]
    if deep and len(deep) == len(others) and "ConvNet" not in models:
        place = max(next(i for i, model in enumerate(found.values()) if model is deep[0]), 1)  # the first stays first
        rows = list(found.items())
        found = dict([*rows[:place], ("ConvNet", deep[0].base), *rows[place:]])
    return found


def check(path: PathLike, models: Mapping[str, AnyModel], background: int | None) -> None:
    """Refuse models that cannot be compared, and a place that cannot be written, before long work."""
    if not models:
        raise InputError("no model was given for the report; give one or more, by name.")
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder; give the name of a file to write, e.g. {Path(path) / 'report.html'}.")
    check_folder_writable(Path(path).parent)
    first_name, first = next(iter(models.items()))
    known = ", ".join(map(str, first.classes))
    for name, model in models.items():
        if model.classes != first.classes:
            raise InputError(
                f"{name} has the classes {', '.join(map(str, model.classes))} and {first_name} has {known};"
                " compare models of the same classes."
            )
        ours, its = ((one.features.layout, one.features.n_inputs) for one in (first, model))
        if its != ours:
            raise InputError(
                f"{name} was trained on images of {its[1]} channel(s) ({its[0]}) and {first_name} on images of"
                f" {ours[1]} ({ours[0]}); compare models of the same kind of image."
            )
    if background is not None and background not in first.classes:
        raise InputError(f"the background is {background}; it must be one of the classes {known}.")


def render(values: Mapping[str, Any]) -> str:
    """The page of these values; whatever they hold is shown as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("hedgerow.report", "template")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The page's own script is the only one that a browser may run: it is known by its hash.
    script = loader.get_source(environment, "sort.js")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return environment.get_template("page.html").render(**values, script=script, script_hash=digest)
