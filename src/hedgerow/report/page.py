"""The page: checks before long work, then measures, draws and writes one HTML file."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow import extras
from hedgerow.errors import InputError
from hedgerow.files import PathLike, atomic_path, check_folder_writable
from hedgerow.forest.arrays import ForestStack
from hedgerow.progress import Report, reporting

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet
    from hedgerow.report.measure import Measured


@dataclass(frozen=True)
class Table:
    """A table of an experiment: the first column names the rows; floats get three decimals, None a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """A line chart of an experiment; lines: name -> (x, y, spread), the spread 0 where there is none."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float, float]]]
    log_x: bool = False
    note: str = ""


def write_report(
    path: PathLike,
    models: Mapping[str, ForestStack | StackNet],
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
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

    models:     by name, in order: gains are over the first. Where no forest as grown is among them, that of the first
                network is shown too, as "DF"
    images:     each (H,W[,C]), or (F,H,W) for models of the user's own channels; taken one at a time
    labels:     each (H,W) class values, or the unlabelled value of the first model
    names:      of the images
    background: a class that is shown dark and left out of a second balanced accuracy
    class_names: of class values; those without one are shown as they are
    tables, curves: more results, shown as they are
    timings:    seconds of the work that led to the models
    settings:   of that work, nested or not
    """
    for package in ("jinja2", "matplotlib"):
        extras.require(package, "a report")
    from hedgerow.report import contents
    from hedgerow.report.measure import measure

    models = with_forests(models)
    names = list(names) if names is not None else [f"image {i + 1}" for i in range(len(images))]
    check(path, models, images, labels, names, background)
    source = contents.Source(images, labels, names, next(iter(models.values())))
    measured: list[Measured] = []
    with reporting(progress) as report:
        for place, (name, model) in enumerate(models.items()):

            def tell(done: int, name: str = name, place: int = place) -> None:
                report(f"measuring: {name}", place * len(images) + done, len(models) * len(images))

            measured.append(measure(name, model, images, source.target, tell))
        report("drawing", 0, 1)
        page = contents.contents(measured, source, background, class_names or {})
        report("drawing", 1, 1)
    page |= contents.extra_results(tables, curves) | contents.facts(measured, timings, settings)
    text = render(
        page | {"title": title, "about": about, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    )
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def with_forests(models: Mapping[str, ForestStack | StackNet]) -> dict[str, ForestStack | StackNet]:
    """The models, after the forests of the first network if no forests as grown are among them."""
    nets = [model for model in models.values() if not isinstance(model, ForestStack)]
    is_grown = any(isinstance(m, ForestStack) and "mapped_back" not in m.settings for m in models.values())
    return {**({"DF": nets[0].stack} if nets and not is_grown and "DF" not in models else {}), **models}


def check(
    path: PathLike,
    models: Mapping[str, ForestStack | StackNet],
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    names: Sequence[str],
    background: int | None,
) -> None:
    """Refuse what would end in a refusal after long work."""
    from hedgerow.predict.evaluate import labelled_images

    if not models:
        raise InputError("no model was given for the report; give one or more, by name.")
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder; give the name of a file to write, e.g. {Path(path) / 'report.html'}.")
    check_folder_writable(Path(path).parent)
    if len(images) == 0 or len(images) != len(labels) or len(images) != len(names):
        raise InputError(
            f"there are {len(images)} image(s), {len(labels)} label map(s) and {len(names)} name(s); give one label map"
            " and one name for each image, and at least one image."
        )
    first_name, first = next(iter(models.items()))
    for name, model in models.items():
        if model.classes != first.classes:
            raise InputError(
                f"{name} has the classes {', '.join(map(str, model.classes))} and {first_name} has"
                f" {', '.join(map(str, first.classes))}; compare models of the same classes."
            )
    if background is not None and background not in first.classes:
        known = ", ".join(map(str, first.classes))
        raise InputError(f"the background is {background}; it must be one of the classes {known}.")
    kinds = {(model.features.kind, model.features.n_inputs): model for model in models.values()}
    for model in kinds.values():
        for i in range(len(images)):  # one at a time: they may be read from files
            labelled_images(model, [images[i]], [labels[i]], first.unlabelled, [names[i]])


def render(values: Mapping[str, Any]) -> str:
    """The page of these values; whatever they hold is shown as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hedgerow.report", "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(**values)
