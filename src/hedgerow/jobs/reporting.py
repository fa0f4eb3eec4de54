"""Reporting: one page about the models of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.deep.parts import parts_of
from hedgerow.files import PathLike
from hedgerow.images.pairing import FilesSpec, Pair, pair_files
from hedgerow.images.reading import Pages
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, files_of, images_for, labels_of
from hedgerow.progress import Report
from hedgerow.report import write_report

if TYPE_CHECKING:
    from hedgerow.deep.parts import AnyModel


@dataclass(frozen=True)
class Shown:
    """What a page is about: images, each as the models take it, their labels (H,W), and names."""

    images: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    names: Sequence[str]


Parts = Callable[[Sequence[Any], Sequence[Pair], Pages], Shown]
"""What of files is shown: (models, files with their labels, which pages to read) -> Shown."""
MAPPED_BACK = {"weights": "MB1", "leaf_mean": "MB2", "fitted": "fitted", "soft": "soft"}


def report(
    models: Sequence[PathLike],
    images: FilesSpec,
    labels: FilesSpec,
    output: PathLike,
    *,
    background: int | None = None,
    title: str | None = None,
    pages: Pages = None,
    overwrite: bool = False,
    parts: Parts | None = None,
    progress: Report | None = None,
) -> int:
    """Compare models on images that they have not seen; write one HTML page and return how many images there were.

    parts: what of the files is shown, see `scale.reporting`; None: all of it
    """
    files = list(dict.fromkeys(Path(model) for model in models))
    pairs = pair_files(images, labels)
    output = checked_output(output, [*files, *files_of(pairs)], "report.html", overwrite=overwrite)
    loaded = [model_file.load(path) for path in files]
    shown = (parts or _whole)(loaded, pairs, pages)
    write_report(
        output,
        dict(zip(unique_names(files, loaded), loaded, strict=True)),
        shown.images,
        shown.labels,
        title=title or f"What {files[0].stem} makes of {len(pairs)} image{'s' * (len(pairs) != 1)}",
        names=shown.names,
        background=background,
        progress=progress,
    )
    return len(pairs)


def _whole(models: Sequence[AnyModel], pairs: Sequence[Pair], pages: Pages) -> Shown:
    images = images_for(models[0], [pair.image for pair in pairs], pages)
    return Shown(images, labels_of(pairs, models[0].legend), [pair.image.name for pair in pairs])


def unique_names(files: Sequence[Path], models: Sequence[AnyModel]) -> list[str]:
    """What each model is, and where that is not enough the name of its file, or all of its path."""
    names = [kind_of(one) for one in models]
    for more in ([path.name for path in files], [str(path) for path in files]):
        seen = Counter(names)
        names = [
            f"{kind_of(one)}, {text}" if seen[name] > 1 else name
            for one, name, text in zip(models, names, more, strict=True)
        ]
    return names


def kind_of(model: AnyModel) -> str:
    """The paper's name for a model; Deep is ours."""
    stack, net, deep = parts_of(model)
    if net is not None:
        return "ConvNet" if deep is None else "Deep"
    return MAPPED_BACK.get(stack.settings.get("mapped_back", ""), "DF")
