"""The command that shows what models can do: report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hedgerow.cli.parts import Files, Images, Labels, Model, check_writable, megabytes
from hedgerow.errors import InputError

if TYPE_CHECKING:
    from hedgerow.forest.arrays import ForestStack
    from hedgerow.network.stacknet import StackNet

MAPPED_BACK = {"weights": "MB1", "leaf_mean": "MB2", "fitted": "fitted", "soft": "soft"}


def report(
    model: Model,
    images: Images,
    labels: Labels,
    output: Annotated[Path, typer.Option("--output", "-o", help="Page to write, e.g. report.html.")],
    also: Annotated[
        list[Path] | None, typer.Option(help="Another model to compare with the first; may be repeated.")
    ] = None,
    background: Annotated[int | None, typer.Option(help="Class that is shown dark and scored apart.")] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
) -> None:
    """Write one HTML page about models: scores, images with their errors, what they confuse and what they look at.

    Give images that the models have not seen. Of a network the forests that it came from are shown too.

    Example: hedgerow report net.hedge test_photos/ test_painted/ -o report.html --also small.hedge
    """
    from hedgerow.images.pairing import pair_files
    from hedgerow.images.reading import read_input, read_labels
    from hedgerow.io import model_file
    from hedgerow.report import write_report

    files = list(dict.fromkeys([model, *(also or [])]))
    pairs = pair_files(images, labels)
    check_writable(output, pairs, *files, example="report.html")
    models = [model_file.load(path) for path in files]
    if background is not None and background not in models[0].classes:
        known = ", ".join(map(str, models[0].classes))
        raise InputError(f"--background is {background}; it must be one of the classes of {model}: {known}.")
    write_report(
        output,
        dict(zip(unique_names(files, models), models, strict=True)),
        Files([pair.image for pair in pairs], partial(read_input, features=models[0].features.kind)),
        Files([pair.label for pair in pairs], read_labels),
        title=title or f"What {model.stem} makes of {len(pairs)} image{'s' * (len(pairs) != 1)}",
        names=[pair.image.name for pair in pairs],
        background=background,
    )
    print(f"{output}: {len(pairs)} image(s), {megabytes(output.stat().st_size)}; open it in a browser")


def unique_names(files: Sequence[Path], models: Sequence[ForestStack | StackNet]) -> list[str]:
    """What each model is, and where that is not enough the name of its file, or all of its path."""
    names = [kind_of(one) for one in models]
    for more in ([path.name for path in files], [str(path) for path in files]):
        seen = Counter(names)
        names = [
            f"{kind_of(one)} ({text})" if seen[name] > 1 else name
            for one, name, text in zip(models, names, more, strict=True)
        ]
    return names


def kind_of(model: ForestStack | StackNet) -> str:
    """The paper's name for a model."""
    from hedgerow.forest.arrays import ForestStack

    if not isinstance(model, ForestStack):
        return "ConvNet"
    return MAPPED_BACK.get(model.settings.get("mapped_back", ""), "DF")
