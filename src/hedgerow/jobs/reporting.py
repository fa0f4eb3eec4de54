"""Reporting on models in one HTML page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow.files import PathLike
from hedgerow.images.pairing import FilesSpec, pair_files
from hedgerow.images.reading import Pages
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, files_of
from hedgerow.progress import Report, Say, quiet
from hedgerow.report.naming import paper_name
from hedgerow.report.page import write_report
from hedgerow.scale.large_report import shown_parts

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel


@dataclass(frozen=True)
class ReportRequest:
    """A page about models, scored on images that they were not trained on.

    models:     model files; the others are compared with the first
    output:     the HTML page to write
    background: class that is shown dark and scored separately
    title:      heading of the page
    pages:      which pages of image files to read, see `read_image`
    overwrite:  also overwrite an existing file that Hedgerow did not write
    """

    models: Sequence[PathLike]
    images: FilesSpec
    labels: FilesSpec
    output: PathLike
    background: int | None = None
    title: str | None = None
    pages: Pages = None
    overwrite: bool = False


def report(request: ReportRequest, *, say: Say = quiet, progress: Report | None = None) -> int:
    """Write one HTML page that compares models; returns the number of images. Large images are shown in parts."""
    files = list(dict.fromkeys(Path(model) for model in request.models))
    pairs = pair_files(request.images, request.labels, say)
    output = checked_output(request.output, [*files, *files_of(pairs)], "report.html", overwrite=request.overwrite)
    models = [model_file.load(path) for path in files]
    shown = shown_parts(models, pairs, request.pages, say)
    write_report(
        output,
        dict(zip(unique_names(files, models), models, strict=True)),
        shown.images,
        shown.labels,
        title=request.title or f"{files[0].stem} on {len(pairs)} image{'s' * (len(pairs) != 1)}",
        names=shown.names,
        background=request.background,
        progress=progress,
    )
    return len(pairs)


def unique_names(files: Sequence[Path], models: Sequence[AnyModel]) -> list[str]:
    """The kind of each model; where two are equal, with the file name, or if needed the whole path."""
    names = [paper_name(model) for model in models]
    for more in ([path.name for path in files], [str(path) for path in files]):
        seen = Counter(names)
        names = [
            f"{paper_name(model)}, {text}" if seen[name] > 1 else name
            for model, name, text in zip(models, names, more, strict=True)
        ]
    return names
