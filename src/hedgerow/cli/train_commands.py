"""The commands that make models: train, refine, back."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hedgerow import jobs
from hedgerow.choices import FEATURES, described
from hedgerow.cli.common import Result
from hedgerow.cli.encoder_command import offer_encoder
from hedgerow.cli.options import (
    Axes,
    Cache,
    Cluster,
    Device,
    Groups,
    Images,
    Labels,
    Model,
    Overwrite,
    Pages,
    Unlabelled,
    VoxelSize,
    Workers,
    given,
    output_option,
    read_settings,
    workers_of,
)
from hedgerow.cli.usage import more_option, reading_option
from hedgerow.config import EncoderConfig, RefineConfig, Sharpness, StackConfig
from hedgerow.errors import ConfigError
from hedgerow.forest.history import Refinement
from hedgerow.images.axes import given_voxel_size
from hedgerow.images.pairing import split_images_and_labels
from hedgerow.memory import megabytes

PRESETS: dict[str, Any] = {
    "default": RefineConfig,
    "kinect": RefineConfig.kinect,
    "zebrafish": RefineConfig.zebrafish,
}


def train(
    images: Images,
    labels: Labels,
    output: Annotated[Path, output_option("Model file to write, e.g. model.hedge.")],
    config: Annotated[
        Path | None, typer.Option(readable=False, help="Settings file in TOML or JSON; see hedgerow settings.")
    ] = None,
    levels: Annotated[int | None, typer.Option(help="Number of forests in the stack.")] = None,
    trees: Annotated[int | None, typer.Option(help="Number of trees in each forest.")] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help=f"{described(FEATURES)} ({EncoderConfig().name}); encoder:NAME: those of another network; "
            "bank+encoder: several kinds.",
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Encoder layers to read; each encoder has defaults.")
    ] = None,
    tune: Annotated[
        Literal["auto", "off"],
        typer.Option(help="auto: choose settings that suit the images; off: the plain defaults."),
    ] = "auto",
    reserve: Annotated[
        float | None,
        typer.Option(help="Fraction of the images to hold out, to score this model and models derived from it."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same model.")] = None,
    effort: Annotated[
        Literal["fast", "good", "best"],
        typer.Option(help="fast: forests; good: also a network refined from them; best: also convolutional networks."),
    ] = "fast",
    minutes: Annotated[float | None, typer.Option(help="Approximate time limit for --effort good or best.")] = None,
    device: Device = "cpu",
    restart: Annotated[
        bool, typer.Option("--restart", help="With --effort good or best: discard an interrupted run.")
    ] = False,
    unlabelled: Annotated[
        str | None,
        reading_option(
            metavar="VALUE|auto", help="Label value that means unlabelled; by default 255; auto: 255, 0 or -1."
        ),
    ] = None,
    label_kind: Annotated[
        Literal["classes", "objects"],
        reading_option(
            "--labels", help="objects: label maps number objects; learns inside, boundary and background from them."
        ),
    ] = "classes",
    max_classes: Annotated[int, reading_option(help="Maximum number of classes; more are refused.")] = 64,
    groups: Groups = None,
    pages: Pages = None,
    axes: Axes = None,
    voxel_size: VoxelSize = None,
    workers: Workers = None,
    cluster: Cluster = None,
    cache: Cache = None,
    overwrite: Overwrite = False,
) -> Result:
    """Train a model on images and labels: a stack of forests and, with more effort, networks.

    Example: hedgerow train photos/ painted/ -o model.hedge

    Slower, better: hedgerow train photos/ painted/ -o model.hedge --effort best
    """
    changes = {"n_levels": levels, "n_trees": trees, "features": features, "reserve": reserve, "seed": seed}
    request = jobs.TrainRequest(
        *split_images_and_labels([*images, labels]), output, effort,
        config=None if config is None else StackConfig.read(config), tune=tune, changes=given(changes),
        layers=_names(layers), minutes=minutes, device=device, restart=restart, workers=workers_of(workers, cluster),
        unlabelled=_unlabelled(unlabelled), max_classes=max_classes, label_kind=label_kind,
        groups=groups, pages=pages, axes=axes, voxel_size=given_voxel_size(voxel_size),
        keep=[] if config is None else [config], overwrite=overwrite,
    )  # fmt: skip
    trained = jobs.train(request, say=print)
    result: Result = {"model": str(output), "bytes": trained.n_bytes, "features": trained.model.features.title}
    offer_encoder(trained.model, is_chosen=features is not None or config is not None)
    if trained.stages:
        print(f"{output}: {megabytes(trained.n_bytes)}")
        return {**result, "stages": [asdict(stage) for stage in trained.stages]}
    if trained.model.n_levels < len(trained.held_out):
        print(f"levels after {trained.model.n_levels} are discarded: no gain on held-out pixels")
    print(f"{output}: {megabytes(trained.n_bytes)}")
    return {
        **result,
        "images": trained.model.settings["n_images"],
        "classes": list(trained.model.classes),
        "held_out_mean_dice": trained.held_out,
    }


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _unlabelled(text: str | None) -> int | str | None:
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError as error:
        raise ConfigError(f"--unlabelled is {text!r}; give a whole number, e.g. 0 or 255, or auto.") from error


def refine(
    model: Model,
    images: Images,
    labels: Labels,
    output: Annotated[Path, output_option("Network file to write, e.g. net.hedge.")],
    config: Annotated[
        Path | None, typer.Option(readable=False, help="Settings file; see hedgerow settings refine.")
    ] = None,
    preset: Annotated[
        Literal["default", "kinect", "zebrafish"],
        typer.Option(
            show_default=False,
            help="default: Hedgerow's settings; kinect, zebrafish: those of the paper's experiments.",
        ),
    ] = "default",
    steps: Annotated[int | None, typer.Option(help="Number of training steps; each sees one image.")] = None,
    validation: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="IMAGES LABELS",
            help="Images and labels to score the network on; they must not be training images of the forests.",
        ),
    ] = None,
    device: Device = "cpu",
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same network.")] = None,
    unlabelled: Unlabelled = None,
    groups: Groups = None,
    pages: Pages = None,
    split: Annotated[
        Literal["soft", "tanh", "crelu"] | None, more_option(help="Kind of split in the network; soft by default.")
    ] = None,
    sharpness: Annotated[
        str | None,
        more_option(
            metavar="SPLIT,LEAF,VOTE",
            help="Sharpness of splits, leaves and votes, e.g. 100,1,0.5; the default depends on the kind of split.",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        more_option(help="Train on every N-th row and column; by default derived from the setting pixels."),
    ] = None,
    train_encoder: Annotated[
        bool,
        more_option(
            "--train-encoder", help="Also train the last layers of the pretrained network that computes the features."
        ),
    ] = False,
    restart: Annotated[bool, more_option("--restart", help="Discard an interrupted run and start over.")] = False,
    cache: Cache = None,
    overwrite: Overwrite = False,
) -> Result:
    """Map a stack to its ConvNet and train it end to end; or refine a network further.

    Rerun the same command to resume an interrupted run.

    Example: hedgerow refine model.hedge photos/ painted/ -o net.hedge
    """
    if config is not None and preset != "default":
        raise ConfigError("--config and --preset were both given; give one of them.")
    settings = read_settings(
        config, PRESETS[preset](), n_steps=steps, stride=stride, seed=seed, train_encoder=train_encoder or None
    )
    request = jobs.RefineRequest(
        model, *split_images_and_labels([*images, labels]), output, settings, split=split,
        sharpness=_sharpness(sharpness), validation=validation, unlabelled=unlabelled, groups=groups, pages=pages,
        device=device,
        restart=restart, overwrite=overwrite, keep=[] if config is None else [config],
    )  # fmt: skip
    refined = jobs.refine(request, say=print)
    record = refined.net.refinements[-1]
    _print_scores(record)
    print(f"{output}: {megabytes(refined.n_bytes)}")
    return {
        "model": str(output),
        "bytes": refined.n_bytes,
        "steps": record.checks[-1].step,
        "mean_dice": record.scores,
    }


def _sharpness(text: str | None) -> Sharpness | None:
    if text is None:
        return None
    try:
        split, leaf, vote = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--sharpness is {text!r}; give three numbers, e.g. 100,1,0.5.") from error
    return Sharpness(split, leaf, vote)


def _print_scores(record: Refinement) -> None:
    scores = record.scores
    if "refined" not in scores:
        print(
            "not scored: the forests were trained on these images; to score the network, give other images with "
            "--validation, or train the forests with --reserve 0.2"
        )
        return
    print(f"mean Dice on {record.n_scored} image(s) that neither the forests nor the refinement saw:")
    for key, name in (("stack", "stack"), ("mapped", "network before"), ("refined", "network after")):
        print(f"  {name:<15} {scores[key]:.3f}")


def back(
    model: Model,
    output: Annotated[Path, output_option("Model file to write, e.g. small.hedge.")],
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGES",
            help="Images to compute the votes from (leaf_mean, fitted): a folder, files, or a pattern.",
        ),
    ] = None,
    method: Annotated[
        Literal["fitted", "leaf_mean", "weights", "soft"],
        typer.Option(
            help="fitted: Map Back 2 with the last votes fitted; leaf_mean: Map Back 2; weights: Map Back 1; "
            "soft: exactly the network."
        ),
    ] = "fitted",
    stride: Annotated[int, typer.Option(help="leaf_mean, fitted: use every N-th row and column of the images.")] = 1,
    tolerance: Annotated[
        float | None, typer.Option(help="soft: skip branches that a pixel reaches with at most this probability.")
    ] = None,
    pages: Pages = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
) -> Result:
    """Map a network back to forests, which run without PyTorch; labels are not needed.

    With --method soft and images, the command prints how many pixels change class because of the tolerance.

    Example: hedgerow back net.hedge photos/ -o small.hedge
    """
    request = jobs.BackRequest(
        model, output, images or None, method, stride=stride, tolerance=tolerance, pages=pages, device=device,
        overwrite=overwrite,
    )  # fmt: skip
    mapped = jobs.back(request, say=print)
    leaves = sum(forest.n_leaves for forest in mapped.stack.levels)
    print(f"{mapped.stack.n_levels} level(s), {leaves:,} leaves, votes by {method}")
    if mapped.stack.is_soft:
        print(f"soft splits; branches of probability {mapped.stack.tolerance:g} or less are skipped")
    if mapped.n_compared:
        print(f"this changes the class of {mapped.changed:.3%} of the pixels in the first {mapped.n_compared} image(s)")
    print(f"{output}: {megabytes(mapped.n_bytes)}")
    return {
        "model": str(output),
        "bytes": mapped.n_bytes,
        "method": method,
        "levels": mapped.stack.n_levels,
        "leaves": leaves,
        "tolerance": mapped.stack.tolerance if mapped.stack.is_soft else None,
        "compared_images": mapped.n_compared,
        "changed": mapped.changed if mapped.n_compared else None,
    }
