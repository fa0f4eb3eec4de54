"""Options of commands on large images and many machines."""

from typing import Annotated, Any, Literal

import typer

from hedgerow.cli.usage import LARGE, Misuse


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=LARGE, **more)


Level = Annotated[int, _option("--level", min=0, help="Level of a pyramid to read; 0 is the largest.")]
PixelSize = Annotated[
    float | None, _option("--pixel-size", help="Read the level whose pixels come nearest to so many micrometres.")
]
Region = Annotated[
    str | None,
    _option("--region", metavar="T:B,L:R", help="Predict only these rows and columns, e.g. 0:4096,512:1024."),
]
Mask = Annotated[
    str | None,
    _option("--mask", metavar="FILE|'> V'|'< V'", help="Compute only where an image is not 0, or by a threshold."),
]
NoLabels = Annotated[bool, _option("--no-labels", help="Write only the other maps that are asked for.")]
Workers = Annotated[int | None, _option("--workers", min=1, help="Number of processes that work side by side.")]
Cluster = Annotated[
    str | None,
    _option("--cluster", metavar="ADDRESS", help="Dask scheduler whose workers do it, e.g. tcp://host:8786."),
]

AnyDevice = Annotated[
    Literal["cpu", "cuda", "auto"],
    typer.Option(help="Where to compute; auto: networks and encoders on a GPU where a worker has one."),
]


def workers_of(workers: int | None, cluster: str | None) -> str | int | None:
    """Who does the work, as requests take it."""
    if workers is not None and cluster is not None:
        raise Misuse("--workers and --cluster were both given; give one of them.")
    return workers if cluster is None else cluster
