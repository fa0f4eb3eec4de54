"""The commands about networks: refine, back, look."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hedgerow import extras
from hedgerow.cli.parts import (
    Device,
    DeviceName,
    Files,
    Images,
    Labels,
    Model,
    Unlabelled,
    check_sizes,
    check_writable,
    megabytes,
)
from hedgerow.errors import ConfigError, DivergenceError, InputError

if TYPE_CHECKING:
    from hedgerow.forest.arrays import ForestStack
    from hedgerow.network.stacknet import StackNet


class Split(StrEnum):
    soft = "soft"
    tanh = "tanh"
    crelu = "crelu"


MOST_COMPARED = 4  # images that show what a tolerance changes: the network without one is slow


class Method(StrEnum):
    fitted = "fitted"
    leaf_mean = "leaf_mean"
    weights = "weights"
    soft = "soft"


class Preset(StrEnum):
    default = "default"
    kinect = "kinect"
    zebrafish = "zebrafish"


def refine(
    model: Model,
    images: Images,
    labels: Labels,
    output: Annotated[Path, typer.Option("--output", "-o", help="Network file to write, e.g. net.hedge.")],
    config: Annotated[Path | None, typer.Option(help="Settings; see `hedgerow settings refine`.")] = None,
    preset: Annotated[Preset, typer.Option(help="Settings of an experiment of the paper.")] = Preset.default,
    split: Annotated[Split | None, typer.Option(help="Kind of split of a stack's network; soft unless told.")] = None,
    sharpness: Annotated[
        str | None, typer.Option(help="Of splits, leaves and votes, e.g. 100,1,0.5; as measured unless told.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Images shown, one a step.")] = None,
    stride: Annotated[
        int | None, typer.Option(help="Train on every so many rows and columns; unless told, as `pixels` says.")
    ] = None,
    validation: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Images and labels that score the network, in place of a part of the training images."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same network.")] = None,
    unlabelled: Unlabelled = None,
    device: Device = DeviceName.cpu,
    restart: Annotated[bool, typer.Option("--restart", help="Forget an interrupted run of the same output.")] = False,
) -> None:
    """Map a stack to its ConvNet and refine that end to end; or refine a network further.

    An interrupted run goes on where it stopped when the same command is given again.

    Example: hedgerow refine model.hedge photos/ painted/ -o net.hedge
    """
    extras.require("torch", "refinement")
    from hedgerow.config import RefineConfig
    from hedgerow.forest.arrays import ForestStack
    from hedgerow.images.pairing import pair_files
    from hedgerow.io import model_file
    from hedgerow.predict import devices
    from hedgerow.refinement.loop import refine as refine_network

    if config is not None and preset is not Preset.default:
        raise ConfigError("--config and --preset were both given; give one of them.")
    presets: dict[str, Any] = {
        "default": RefineConfig,
        "kinect": RefineConfig.kinect,
        "zebrafish": RefineConfig.zebrafish,
    }
    settings = RefineConfig.read(config) if config else presets[preset.value]()
    given = {"n_steps": steps, "stride": stride, "seed": seed}
    settings = dataclasses.replace(settings, **{k: v for k, v in given.items() if v is not None})
    devices.check_device(device.value, is_network=True)
    loaded = model_file.load(model)
    pairs = pair_files(images, labels)
    validation_pairs = [] if validation is None else pair_files(*validation)
    check_writable(output, [*pairs, *validation_pairs], model, config)
    read = _read(pairs, loaded.features.kind)
    held = None if validation is None else _read(validation_pairs, loaded.features.kind)
    if isinstance(loaded, ForestStack):
        from hedgerow.network.mapping import to_convnet

        net = to_convnet(loaded, (split or Split.soft).value, _sharpness(sharpness))
    elif split is not None or sharpness is not None:
        raise InputError(f"{model} is a network already; --split and --sharpness are for a stack of forests.")
    else:
        net = loaded
    print(f"network of {len(net.layers()) - 1} hidden layers, {net.split} splits; {_sharpness_text(net)}")
    checkpoint = output.with_name(output.name + ".checkpoint")
    if restart:
        checkpoint.unlink(missing_ok=True)
    names, validation_names = ([str(pair.image) for pair in some] for some in (pairs, validation_pairs))
    try:
        refined = refine_network(
            net.to(device.value), *read, settings, validation=held, unlabelled=unlabelled, names=names,
            validation_names=validation_names, checkpoint=checkpoint, keep_checkpoint=True,
        )  # fmt: skip
    except DivergenceError as error:
        model_file.save(error.network, output)  # type: ignore[arg-type]
        checkpoint.unlink(missing_ok=True)
        raise
    n_bytes = model_file.save(refined, output)
    checkpoint.unlink(missing_ok=True)  # only now: a disk that is full must not cost the run
    _print_scores(refined.settings["refined"][-1], validation is not None)
    print(f"{output}: {megabytes(n_bytes)}")


def back(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, e.g. small.hedge.")],
    images: Annotated[
        str | None,
        typer.Argument(help="Folder, file or glob of images; leaf_mean and fitted take their votes from them."),
    ] = None,
    method: Annotated[
        Method,
        typer.Option(help="Map Back 2 with the last votes fitted; Map Back 2; Map Back 1; soft: exactly the network."),
    ] = Method.fitted,
    stride: Annotated[
        int,
        typer.Option(help="leaf_mean, fitted: take every N-th row and column of the images."),
    ] = 1,
    tolerance: Annotated[
        float | None,
        typer.Option(help="soft: leave out branches that a pixel reaches with no more than this probability."),
    ] = None,
    device: Device = DeviceName.cpu,
) -> None:
    """Map a network back to forests, which run without PyTorch; labels are not needed.

    With --method soft and images, says how many pixels of the images change class through the tolerance.

    Example: hedgerow back net.hedge photos/ -o small.hedge
    """
    extras.require("torch", "mapping back")
    from hedgerow.forest.arrays import ForestStack
    from hedgerow.images.pairing import find_files
    from hedgerow.images.reading import read_input
    from hedgerow.io import model_file
    from hedgerow.network.mapping import FROM_IMAGES, to_forest
    from hedgerow.predict import devices

    loaded = model_file.load(model)
    if isinstance(loaded, ForestStack):
        raise InputError(f"{model} holds forests already; give a network, e.g. of `hedgerow refine`.")
    net = devices.on_device(loaded, device.value)
    files = find_files(images) if images is not None else []
    check_writable(output, [], model, *files)
    pictures = Files(files, partial(read_input, features=loaded.features.kind))
    if method.value in FROM_IMAGES and not pictures:
        raise InputError(f"{method} takes its votes from images; name them after the model, or use --method weights.")
    stack = to_forest(net, pictures, method.value, stride=stride, tolerance=tolerance)
    n_bytes = model_file.save(stack, output)
    leaves = sum(forest.n_leaves for forest in stack.levels)
    print(f"{stack.n_levels} level(s), {leaves:,} leaves, votes by {method.value}")
    if stack.is_soft:
        print(f"soft splits; branches of probability {stack.tolerance:g} or less are left out")
        if pictures and stack.tolerance:
            some = pictures[:MOST_COMPARED]
            print(
                f"pixels of the first {len(some)} that change class by that: {_changed(net.to('cpu'), stack, some):.3%}"
            )
    print(f"{output}: {megabytes(n_bytes)}")


def _changed(net: StackNet, stack: ForestStack, pictures: Sequence[Any]) -> float:
    """The part of all pixels that the soft stack, with its tolerance, labels otherwise than the network without one."""
    net.set_tolerance(0.0)
    pairs = [(net.predict(picture), stack.predict(picture)) for picture in pictures]
    return sum(int((a != b).sum()) for a, b in pairs) / sum(a.size for a, _ in pairs)


def look(
    model: Model,
    image: Annotated[str, typer.Argument(help="Image file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Figure to write: .png, .pdf or .svg.")],
    truth: Annotated[str | None, typer.Option(help="Label map to show beside the predictions.")] = None,
    classes: Annotated[list[int] | None, typer.Option("--class", help="Class to show; may be repeated.")] = None,
) -> None:
    """Draw what each level says, class by class: the forests' probabilities beside the network's activations.

    Example: hedgerow look net.hedge photo.png -o inside.png
    """
    from hedgerow.images.pairing import find_files
    from hedgerow.images.reading import read_input, read_labels
    from hedgerow.io import model_file
    from hedgerow.report.figures import look as draw

    loaded = model_file.load(model)
    files = find_files(image)
    if len(files) != 1:
        raise InputError(f"{image} holds {len(files)} images; give one.")
    labels = None if truth is None else read_labels(Path(truth))
    picture = read_input(files[0], loaded.features.kind)
    draw(loaded, picture, output, classes=classes, truth=labels, title=files[0].name)
    print(f"{output}: {len(loaded.classes)} classes, {loaded.n_levels} level(s)")


def print_network(values: dict[str, Any]) -> None:
    """The layers of a network and how it was refined, from `model_io.description`."""
    hidden = len(values["layers"]) - 1
    print(f"network: {values['split']} splits, {hidden} hidden layers")
    for layer in values["layers"]:
        print(f"  {layer['name']:<7} {layer['neurons']:>9,} neurons  {layer['weights']:>11,} weights  {layer['about']}")
    for number, one in enumerate(values["sharpness"], start=1):
        print(f"  sharpness of level {number}: split {one['split']:g}, leaf {one['leaf']:g}, vote {one['vote']:g}")
    for record in values["refined"]:
        scores = {what: score for what, score in record["scores"].items() if score is not None}
        text = ", ".join(f"{what} {score:.3f}" for what, score in scores.items())
        print(f"refined for {record['history'][-1]['step']} steps" + (f"; mean Dice: {text}" if text else ""))


def _print_scores(record: dict[str, Any], is_unseen: bool) -> None:
    scores = record["scores"]
    if scores["refined"] is None:
        return
    where = "the validation images" if is_unseen else "held-out training images"
    print(f"mean Dice on {where}:")
    for what, name in (("stack", "stack"), ("mapped", "network before"), ("refined", "network after")):
        print(f"  {name:<15} {scores[what]:.3f}")
    if not is_unseen:
        print("  (the forests were grown on these images too, so the stack's score flatters it)")


def _sharpness_text(net: StackNet) -> str:
    each = [net.level(k).sharpness for k in range(net.n_levels)]
    return "sharpness " + ", ".join(dict.fromkeys(f"{one.split:g}/{one.leaf:g}/{one.vote:g}" for one in each))


def _sharpness(text: str | None) -> Any:
    from hedgerow.config import Sharpness

    if text is None:
        return None
    try:
        split, leaf, vote = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--sharpness is {text!r}; give three numbers, e.g. 100,1,0.5.") from error
    return Sharpness(split, leaf, vote)


def _read(pairs: list[Any], features: str) -> tuple[list[Any], list[Any]]:
    """Images and label maps, checked against each other."""
    from hedgerow.images.reading import read_input, read_labels

    pictures, maps = [read_input(p.image, features) for p in pairs], [read_labels(p.label) for p in pairs]
    check_sizes(pictures, maps, pairs, features)
    return pictures, maps
