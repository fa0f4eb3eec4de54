"""The commands that use a model: predict, evaluate, export."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hedgerow import jobs
from hedgerow.choices import EXPORT_FORMATS, described
from hedgerow.cli.common import Result, Unfinished
from hedgerow.cli.measure_command import (
    SPLIT_HELP,
    Background,
    Connectivity,
    Diameter,
    FewestPixels,
    FillHoles,
    MaxSize,
    MinSize,
    names_of,
)
from hedgerow.cli.options import (
    AnyDevice,
    Axes,
    Cache,
    Cluster,
    Device,
    Images,
    Labels,
    Level,
    Mask,
    Model,
    NoLabels,
    Overwrite,
    Pages,
    PixelSize,
    Region,
    Unlabelled,
    VoxelSize,
    Workers,
    output_option,
    workers_of,
)
from hedgerow.cli.usage import more_option, object_option
from hedgerow.images.axes import given_voxel_size
from hedgerow.images.pairing import split_images_and_labels
from hedgerow.memory import megabytes


def predict(
    model: Model,
    images: Images,
    output: Annotated[
        str, output_option("Folder for the results; for one image of any size also an OME-Zarr or TIFF.", kind=str)
    ],
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Also write the image with classes tinted and outlined.")
    ] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Also write the class probabilities.")] = False,
    proba_type: Annotated[
        Literal["float32", "uint8", "uint16"],
        more_option(help="Data type of probability, confidence and entropy files."),
    ] = "float32",
    confidence: Annotated[
        bool, typer.Option("--confidence", help="Also write the probability of the winning class.")
    ] = False,
    entropy: Annotated[
        bool, typer.Option("--entropy", help="Also write the entropy, from 0 (certain) to 1 (uncertain).")
    ] = False,
    format: Annotated[
        Literal["png", "tif", "ome.tif", "npy", "zarr", "nii.gz"] | None,
        typer.Option(help="File type; by default png for labels and tif for other maps and stacks."),
    ] = None,
    objects: Annotated[
        str | None,
        object_option(
            metavar="[NAME,NAME]",
            help="Find objects: write them numbered from 1 as NAME_objects.tif, and tables. Of these classes; without "
            "names, of all but background and boundary.",
        ),
    ] = None,
    diameter: Diameter = None,
    max_size: MaxSize = 0,
    measure: Annotated[
        bool, object_option("--measure", help="Also write tables of objects: objects.csv and objects_totals.csv.")
    ] = False,
    outlines: Annotated[
        list[str] | None,
        object_option(
            metavar="KIND", help="Also write outlines: geojson (QuPath), roi (ImageJ), coco or yolo; repeatable."
        ),
    ] = None,
    object_type: Annotated[
        Literal["annotation", "detection"], object_option(help="Type of the objects in QuPath.")
    ] = "annotation",
    background: Background = None,
    min_size: MinSize = 0,
    fill_holes: FillHoles = 0,
    split: Annotated[
        Literal["distance", "proba"] | None, object_option(help=f"{SPLIT_HELP} Changes tables and outlines only.")
    ] = None,
    connectivity: Connectivity = "8",
    level: Level = 0,
    pixel_size: PixelSize = None,
    region: Region = None,
    mask: Mask = None,
    no_labels: NoLabels = False,
    workers: Workers = None,
    cluster: Cluster = None,
    tile: Annotated[
        int | None, more_option(min=1, help="Side of a tile in pixels; by default as large as memory allows.")
    ] = None,
    pages: Pages = None,
    axes: Axes = None,
    voxel_size: VoxelSize = None,
    device: AnyDevice = "cpu",
    cache: Cache = None,
    overwrite: Overwrite = False,
) -> Result:
    """Segment images: write one label map per image, with the class values of the training labels.

    Example: hedgerow predict model.hedge new_photos/ -o segmented/ --proba
    """
    request = jobs.PredictRequest(
        model, images, output, labels=not no_labels, proba=proba, confidence=confidence, entropy=entropy,
        dtype=proba_type, tile=tile, pages=pages, axes=axes, voxel_size=given_voxel_size(voxel_size), device=device,
        workers=workers_of(workers, cluster),
        overwrite=overwrite, overlay=overlay, format=format, objects=None if objects is None else names_of(objects),
        diameter=diameter, max_size=max_size, measure=measure, outlines=outlines or (),
        object_type=object_type, background=background, min_size=min_size, fill_holes=fill_holes, split=split,
        connectivity=4 if connectivity == "4" else 8, level=level, pixel_size=pixel_size, region=region, mask=mask,
    )  # fmt: skip
    predicted = jobs.predict(request, say=print)
    if isinstance(predicted, jobs.PredictedLarge):
        return _large_result(predicted)
    return _folder_result(predicted, output)


def _large_result(large: Any) -> Result:
    """large: a `PredictedLarge`"""
    resumed = f", {large.n_resumed:,} of {large.n_shards:,} shards from an earlier run" if large.n_resumed else ""
    size = " x ".join(f"{length:,}" for length in large.size)
    print(f"{size} pixels predicted into {', '.join(large.results.values())}{resumed}")
    return {"results": large.results, "size": list(large.size), "shards": large.n_shards, "resumed": large.n_resumed}


def _folder_result(predicted: Any, output: str) -> Result:
    """predicted: a `predict.batch.Predicted`"""
    failures = predicted.failures
    result: Result = {"output": output, "images": predicted.n_images, "failures": list(failures)}
    if predicted.n_objects is not None:
        result["objects"] = predicted.n_objects
    objects = "" if predicted.n_objects is None else f", {predicted.n_objects:,} object(s) measured"
    print(f"{predicted.n_images - len(failures)} of {predicted.n_images} image(s) predicted into {output}{objects}")
    if predicted.hint:
        print(predicted.hint)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    if failures:
        raise Unfinished(f"{len(failures)} image(s) could not be predicted; any others are in {output}.", result)
    return result


def evaluate(
    model: Model,
    images: Images,
    labels: Labels,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="[FILE]", help="Also write the scores to FILE; without FILE, print them as JSON."
        ),
    ] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", readable=False, help="Also write the scores of each image to this table.")
    ] = None,
    background: Annotated[int | None, typer.Option(help="Also print the balanced accuracy without this class.")] = None,
    objects: Annotated[
        str | None,
        object_option(
            metavar="[NAME,NAME]",
            help="Label maps number objects: compare them with those found of these classes; without names, of all but "
            "background and boundary.",
        ),
    ] = None,
    diameter: Diameter = None,
    min_size: FewestPixels = 0,
    max_size: MaxSize = 0,
    fill_holes: FillHoles = 0,
    unlabelled: Unlabelled = None,
    pages: Pages = None,
    axes: Axes = None,
    level: Level = 0,
    pixel_size: PixelSize = None,
    workers: Workers = None,
    cluster: Cluster = None,
    device: Device = "cpu",
    cache: Cache = None,
    overwrite: Overwrite = False,
) -> Result:
    """Score a model on labelled images: Dice, balanced accuracy, confusion; or the objects that it finds.

    Example: hedgerow evaluate model.hedge test_photos/ test_painted/
    """
    request = jobs.EvaluateRequest(
        model, *split_images_and_labels([*images, labels]), output=json_file, csv=csv_file, background=background,
        objects=None if objects is None else names_of(objects),
        diameter=diameter, min_size=min_size, max_size=max_size,
        fill_holes=fill_holes, unlabelled=unlabelled, pages=pages, axes=axes, level=level,
        pixel_size=pixel_size, device=device, workers=workers_of(workers, cluster), overwrite=overwrite,
    )  # fmt: skip
    if objects is not None:
        of_objects = jobs.evaluate_objects(request, say=print)
        print(of_objects.scores)
        _note_known(of_objects.n_known)
        return of_objects.to_dict()
    evaluated = jobs.evaluate(request, say=print)
    scores = evaluated.scores
    print(scores)
    _note_known(evaluated.n_known)
    if evaluated.without_background is not None:
        print(f"balanced accuracy without class {background}: {evaluated.without_background:.4f}")
    print("confusion (rows: truth)")
    width = max(len(f"{n}") for n in [*scores.confusion.ravel(), *scores.classes])
    for value, row in zip(scores.classes, scores.confusion, strict=True):
        print(f"{value:>{width}} |", *(f"{n:>{width}}" for n in row))
    return evaluated.to_dict()


def _note_known(n_known: int) -> None:
    if n_known:
        print(f"note: the model was trained on {n_known} of these images, so their scores are too high")


def export(
    model: Model,
    to: Annotated[
        Literal[tuple(EXPORT_FORMATS)],  # type: ignore[valid-type]
        typer.Option(help=f"{described(EXPORT_FORMATS)}."),
    ],
    output: Annotated[
        Path | None, output_option("File to write; by default model.c or model.onnx beside the model.")
    ] = None,
    no_filters: Annotated[
        bool, typer.Option("--no-filters", help="Leave out the features; your program computes them.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(metavar="PREFIX", help="c: prefix of public names; by default the file's name.")
    ] = None,
    overwrite: Overwrite = False,
) -> Result:
    """Write a model as plain C for small devices, or as ONNX; see docs/export.md.

    Example: hedgerow export model.hedge -o model.c --to c
    """
    written = jobs.export(jobs.ExportRequest(model, to, output, not no_filters, name, overwrite))
    for path in written.files:
        print(f"{path}: {megabytes(path.stat().st_size)}")
    if written.note:
        print(written.note)
    if written.compile is not None:
        print(f"compile with: {written.compile}")
    return {"files": [str(path) for path in written.files], "compile": written.compile}
