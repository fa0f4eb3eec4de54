"""The outputs of an experiment for people: tables, figures and the report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import summary
from experiments.bench import file_name
from experiments.curve_figure import line_figure
from experiments.data import spread
from hedgerow.files import atomic_path, make_folder, write_text
from hedgerow.images.labelled import LabelledSet
from hedgerow.io.model_file import load
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import Report
from hedgerow.report.figures import look, write_comparison
from hedgerow.report.page import write_report
from hedgerow.report.sections import Curve
from hedgerow.synthetic import CLASS_NAMES

N_PICTURES = 4  # test images in the comparison
MOST_IMAGES = 100  # predicted again by the report, for its pictures and its own scores
WRITTEN = (
    "results.json",
    "tables.md",
    "report.html",
    "figures/comparison.png",
    "figures/learning_curve.png",
    "figures/inner-layers.png",
)
SHOWN = ("DF", "ConvNet", "MB1", "MB2", "fitted", "soft")


def write_outputs(folder: Path, results: dict[str, Any], test: LabelledSet, progress: Report | None = None) -> None:
    """Write tables.md, figures/ and report.html; pictures are of the first seed, with Hedgerow's settings if run."""
    tables, curves = summary.tables(results), summary.curves(results)
    write_text(folder / "tables.md", summary.markdown(tables, curves))
    make_folder(folder / "figures")
    for curve in curves:
        draw_curve(curve, folder / "figures" / "learning_curve.png")
    inner = folder / "models" / file_name("paper", "ConvNet", results["seeds"][0])
    if inner.exists() and any(row["part"] == "inner" for row in results["rows"]):
        look(load(inner), test.pictures()[0], folder / "figures" / "inner-layers.png", truth=test.truth(0))
    models = _models(folder, results)
    if not models:
        return
    settings = results["settings"]
    background, blank = settings["background"], next(iter(models.values())).features.blank
    first = replace(test, images=test.images[:N_PICTURES])
    predictions = {name: [predict_indices(model, image.planes) for image in first] for name, model in models.items()}
    write_comparison(folder / "figures" / "comparison.png", first, predictions, background=background, blank=blank)
    names = CLASS_NAMES.get(settings["data"])
    some = replace(test, images=spread(test.images, MOST_IMAGES))
    write_report(
        folder / "report.html",
        models,
        some.pictures(),
        [some.truth(i) for i in range(len(some))],
        title=f"{settings['name'].capitalize()}, {settings['scale']} scale",
        about=_about(settings, len(some)),
        background=background,
        class_names=None if names is None else dict(enumerate(names)),
        tables=tables,
        curves=curves,
        timings=results["timings"],
        settings=settings,
        progress=progress,
    )


def _about(settings: dict[str, Any], n_shown: int) -> str:
    """n_shown: number of test images in the report"""
    sizes = settings["sizes"]
    shapes = ", ".join(shape.strip("()").replace(", ", " x ") for shape in sizes["shapes"])
    is_part = n_shown < sizes["test"]
    of_some = f" Scores outside the experiment's tables are from {n_shown} of the test images." if is_part else ""
    return (
        f"The paper's {settings['name']} protocol on {settings['data']}: {sizes['train']} training images of"
        f" {shapes} pixels, and {sizes['test']} test images ({settings['scored on']}). The pictures show the first"
        f" seed, the tables all seeds.{of_some}"
    )


def _models(folder: Path, results: dict[str, Any]) -> dict[str, Any]:
    """The models of the first seed, by name, in order."""
    seed = results["seeds"][0]
    for part in ("own", "paper"):
        known = {row["model"] for row in results["rows"] if (row["part"], row["seed"]) == (part, seed)}
        if known:
            return {name: load(folder / "models" / file_name(part, name, seed)) for name in SHOWN if name in known}
    return {}


def draw_curve(curve: Curve, path: Path) -> None:
    """Write the report's chart as a picture with a legend."""
    figure = line_figure(curve.lines, curve.x_label, curve.y_label, log_x=curve.log_x)
    figure.axes[0].legend(frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150, facecolor="white")
