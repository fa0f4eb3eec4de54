"""Options and output of commands for large images and several machines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hedgerow import scale
from hedgerow.cli.common import Result
from hedgerow.cli.usage import LARGE, Misuse
from hedgerow.scale.remote import is_remote


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=LARGE, **more)


Level = Annotated[int, _option("--level", min=0, help="Pyramid level to read; 0 is the full resolution.")]
PixelSize = Annotated[
    float | None,
    _option("--pixel-size", help="Read the pyramid level whose pixel size is closest to this, in micrometres."),
]
Region = Annotated[
    str | None,
    _option("--region", metavar="T:B,L:R", help="Predict only these rows and columns, e.g. 0:4096,512:1024."),
]
Mask = Annotated[
    str | None,
    _option(
        "--mask",
        metavar="FILE|'> V'|'< V'",
        help="Predict only where this mask is not 0, or where the image passes a threshold.",
    ),
]
NoLabels = Annotated[bool, _option("--no-labels", help="Do not write labels, only the other maps requested.")]
Workers = Annotated[int | None, _option("--workers", min=1, help="Number of worker processes.")]
Cluster = Annotated[
    str | None,
    _option("--cluster", metavar="ADDRESS", help="Address of a Dask scheduler to run on, e.g. tcp://host:8786."),
]

AnyDevice = Annotated[
    Literal["cpu", "cuda", "auto"],
    typer.Option(help="Device to compute on; auto: networks and encoders on a GPU if the worker has one."),
]


def client_of(workers: int | None, cluster: str | None) -> str | int | None:
    """Who does the work, as `predict_large` takes it."""
    if workers is not None and cluster is not None:
        raise Misuse("--workers and --cluster were both given; give one of them.")
    return workers if cluster is None else cluster


def refuse_for_folders(**given: Any) -> None:
    """Refuse options that only a large image has."""
    for name, value in given.items():
        if value:
            raise Misuse(
                f"--{name.replace('_', '-')} is for one image that is written as OME-Zarr or TIFF; give its name, e.g. "
                "-o result.ome.zarr."
            )


def predict_one(model: Path, images: Sequence[str], output: Path, objects: Mapping[str, Any], **options: Any) -> Result:
    """Predict one image of any size and tell where the results are."""
    for name, value in objects.items():
        if value:
            raise Misuse(
                f"{name} needs the whole image in memory, so it cannot be given for {output}; give a folder, e.g. -o "
                "segmented/, or leave it out."
            )
    if len(images) != 1:
        raise Misuse(f"{len(images)} images were given and one result, {output}; give a folder, e.g. -o segmented/.")
    name = str(output).replace(":/", "://", 1) if _was_address(output) else str(output)
    found = scale.predict_large(model, images[0], name, say=print, **options)
    resumed = f", {found.n_resumed:,} of {found.n_shards:,} shards by an earlier run" if found.n_resumed else ""
    print(f"{found.size[0]:,} x {found.size[1]:,} pixels predicted into {', '.join(found.results.values())}{resumed}")
    return {"results": found.results, "size": list(found.size), "shards": found.n_shards, "resumed": found.n_resumed}


def _was_address(output: Path) -> bool:
    """Whether a path was an address: as a path, it has lost one of its two strokes."""
    first = str(output).partition(":/")
    return bool(first[1]) and not is_remote(output) and first[0].isalnum() and len(first[0]) > 1
