"""Arguments and options shared by several commands."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from hedgerow.cli.usage import MORE, READING
from hedgerow.errors import InputError
from hedgerow.features.layer_cache import cache_features
from hedgerow.settings import Checked

Config = TypeVar("Config", bound=Checked)

Images = Annotated[list[str], typer.Argument(metavar="IMAGES", help="Images: a folder, files, or a pattern.")]
Labels = Annotated[
    str, typer.Argument(metavar="LABELS", help="Label maps named like their images: a folder, files, or a pattern.")
]
# Whether a file can be read is said by whoever reads it.
Model = Annotated[Path, typer.Argument(metavar="MODEL", readable=False, help="Model file.")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to compute on; see `hedgerow info --system`.")]
Unlabelled = Annotated[
    int | None,
    typer.Option(help="Label value that means unlabelled; by default that of the model.", rich_help_panel=READING),
]
Pages = Annotated[
    str | None,
    typer.Option(
        help="Pages of a stack to read: all (as channels), or numbers from 1, e.g. 3 or 1,3-5.",
        rich_help_panel=READING,
    ),
]
Cache = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        callback=lambda folder: cache_features(
            folder
        ),  # every command begins with the folder that it was given, or none
        help="Cache encoder features in this folder.",
        rich_help_panel=MORE,
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Also overwrite files that Hedgerow did not write, except inputs.",
        rich_help_panel=MORE,
    ),
]


def output_option(about: str, kind: type = Path) -> Any:
    """The option --output of a command. kind: `str` where it may be an address, which a path would spoil"""
    return typer.Option("--output", "-o", metavar="PATH", parser=partial(_output, kind), help=about)


def _output(kind: type, text: str) -> Any:
    """The name that was given; an empty one is not the current folder."""
    if not text:
        raise InputError("--output is empty; give a name, or . for the current folder.")
    return kind(text)


def read_settings(file: Path | None, default: Config, **options: Any) -> Config:
    """The settings of a file, or the default ones, with the options that were given in place of theirs."""
    settings = default if file is None else type(default).read(file)
    return replace(settings, **given(options))  # type: ignore[type-var]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that were given."""
    return {name: value for name, value in options.items() if value is not None}
