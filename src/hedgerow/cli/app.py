"""The command line: each command parses, makes one library call, and prints a short table."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow.cli import experiment, export, network, report
from hedgerow.cli.parts import (
    Device,
    DeviceName,
    Images,
    Labels,
    Model,
    Unlabelled,
    check_sizes,
    check_writable,
    class_table,
    kinds,
    megabytes,
)
from hedgerow.errors import HedgerowError, InputError
from hedgerow.progress import heeding_interrupts

app = typer.Typer(
    help="Segment images, pixel by pixel, from a handful of labelled examples.",
    epilog="Add --debug to any command to see where an error comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

INTERRUPTED = 130  # the exit code that typer gives to an interrupted command


class Features(StrEnum):
    bank = "bank"
    channels = "channels"
    depth = "depth"


class ProbaType(StrEnum):
    float32 = "float32"
    uint8 = "uint8"
    uint16 = "uint16"


class Format(StrEnum):
    png = "png"
    tif = "tif"
    npy = "npy"
    zarr = "zarr"


class Stage(StrEnum):
    train = "train"
    refine = "refine"


class Sample(StrEnum):
    somites = "somites"
    bodies = "bodies"


@app.callback()
def _common(
    threads: Annotated[int | None, typer.Option(help="Threads to use; all cores unless told.")] = None,
) -> None:
    if threads is not None:
        from hedgerow.threads import set_threads

        set_threads(threads)


@app.command()
def train(
    images: Images,
    labels: Labels,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, e.g. model.hedge.")],
    config: Annotated[Path | None, typer.Option(help="Settings in TOML or JSON; see `hedgerow settings`.")] = None,
    levels: Annotated[int | None, typer.Option(help="Forests in the stack.")] = None,
    trees: Annotated[int | None, typer.Option(help="Trees in each forest.")] = None,
    features: Annotated[Features | None, typer.Option(help="Filter bank, own channels, or depth.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same model.")] = None,
    unlabelled: Annotated[int, typer.Option(help="Label value that means: no label here.")] = 255,
    max_classes: Annotated[int, typer.Option(help="Refuse labels with more classes than this.")] = 64,
) -> None:
    """Grow a stack of forests from images and labels.

    Example: hedgerow train photos/ painted/ -o model.hedge
    """
    from hedgerow.config import StackConfig
    from hedgerow.forest.autocontext import fit_stack
    from hedgerow.forest.samples import FEW_IMAGES
    from hedgerow.images.pairing import pair_files
    from hedgerow.images.reading import read_input, read_labels
    from hedgerow.io import model_file

    settings = StackConfig.read(config) if config else StackConfig()
    given: dict[str, Any] = {"n_levels": levels, "n_trees": trees, "features": features, "seed": seed}
    settings = dataclasses.replace(settings, **{k: v for k, v in given.items() if v is not None})
    pairs = pair_files(images, labels)
    check_writable(output, pairs, config)
    pictures = [read_input(p.image, settings.features) for p in pairs]
    maps = [read_labels(p.label) for p in pairs]
    names = [str(p.image) for p in pairs]
    check_sizes(pictures, maps, pairs, settings.features)
    table = class_table(maps, unlabelled, pairs, labels)
    if len(table.values) > max_classes:
        raise InputError(
            f"the labels in {labels} have {len(table.values)} different values and at most {max_classes} classes were "
            "expected: are the folders swapped, or the labels smoothed at their edges? If not, raise --max-classes."
        )
    print(f"{len(pairs)} image(s): {kinds(pictures)}")
    if len({p.dtype for p in pictures}) > 1:
        print("note: the images have different number types; the same value must mean the same in all of them")
    print(table)
    stack = fit_stack(pictures, maps, settings, unlabelled=unlabelled, names=names)
    size = model_file.save(stack, output)
    unseen = "training images" if len(pairs) >= FEW_IMAGES else "blocks of the training images"
    for level, score in enumerate(stack.settings["held_out"], start=1):
        print(f"level {level}: mean Dice {score['mean_dice']:.3f} on {unseen} it did not see")
    print(f"{output}: {megabytes(size)}")


@app.command()
def predict(
    model: Model,
    images: Images,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the results (made if missing).")],
    proba: Annotated[bool, typer.Option("--proba", help="Also write the class probabilities.")] = False,
    proba_type: Annotated[ProbaType, typer.Option(help="Numbers of the probability and confidence files.")] = (
        ProbaType.float32
    ),
    confidence: Annotated[bool, typer.Option("--confidence", help="Also write the winning probability.")] = False,
    entropy: Annotated[bool, typer.Option("--entropy", help="Also write the entropy, 0 sure to 1 open.")] = False,
    format: Annotated[Format | None, typer.Option(help="File type; labels png, maps tif unless told.")] = None,
    tile: Annotated[int | None, typer.Option(min=1, help="Side of a tile; what fits in memory unless told.")] = None,
    device: Device = DeviceName.cpu,
) -> None:
    """Segment images: one label map each, with the class values of the training labels.

    Example: hedgerow predict model.hedge new_photos/ -o segmented/ --proba
    """
    from hedgerow.io import model_file
    from hedgerow.predict.batch import Outputs, predict_files
    from hedgerow.predict.devices import on_device

    loaded = on_device(model_file.load(model), device.value)
    fits_png = min(loaded.classes) >= 0 and max(loaded.classes) <= 65535
    if format is Format.png and not fits_png:
        raise InputError(
            f"{model} has classes from {min(loaded.classes)} to {max(loaded.classes)}, and PNG holds 0 to "
            "65535; choose --format tif, npy or zarr."
        )
    one_plane_png = format is Format.png and not proba and proba_type is not ProbaType.float32
    wanted = Outputs(
        labels=format.value if format else "png" if fits_png else "tif",
        maps=format.value if format and (format is not Format.png or one_plane_png) else "tif",
        proba=proba,
        confidence=confidence,
        entropy=entropy,
        dtype=proba_type.value,
    )
    failures = predict_files(loaded, images, output, wanted, tile=tile, say=print)
    if failures:
        for failure in failures:
            print(f"failed: {failure}", file=sys.stderr)
        raise InputError(f"{len(failures)} image(s) could not be predicted; any others are in {output}.")


@app.command()
def evaluate(
    model: Model,
    images: Images,
    labels: Labels,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Also write the scores here; - prints JSON only.")
    ] = None,
    background: Annotated[int | None, typer.Option(help="Class to leave out of the balanced accuracy.")] = None,
    unlabelled: Unlabelled = None,
    device: Device = DeviceName.cpu,
) -> None:
    """Compare predictions with labels: Dice, balanced accuracy, confusion.

    Example: hedgerow evaluate model.hedge test_photos/ test_painted/
    """
    from hedgerow.files import write_text
    from hedgerow.images.pairing import pair_files
    from hedgerow.images.reading import read_input, read_labels
    from hedgerow.io import model_file
    from hedgerow.predict.devices import on_device
    from hedgerow.predict.evaluate import evaluate as evaluate_model

    loaded = on_device(model_file.load(model), device.value)
    pairs = pair_files(images, labels)
    if json_file not in (None, "-"):
        check_writable(Path(json_file), pairs, model)
    if background is not None and background not in loaded.classes:
        raise InputError(
            f"--background is {background}; it must be one of the classes of {model}: "
            f"{', '.join(map(str, loaded.classes))}."
        )
    result = evaluate_model(
        loaded,
        [read_input(p.image, loaded.features.kind) for p in pairs],
        [read_labels(p.label) for p in pairs],
        unlabelled=unlabelled,
        names=[str(p.image) for p in pairs],
    )
    values = result.to_dict()
    if background is not None:
        without = result.balanced_accuracy_without(background)
        values["balanced_accuracy_without_background"] = None if math.isnan(without) else without
    if json_file == "-":
        print(json.dumps(values))
        return
    print(result)
    print(f"mean Dice {result.mean_dice:.4f}, balanced accuracy {result.balanced_accuracy:.4f}")
    if background is not None:
        print(f"balanced accuracy without class {background}: {without:.4f}")
    print("confusion (rows: truth)")
    width = max(len(f"{n}") for n in [*result.confusion.ravel(), *result.classes])
    for value, row in zip(result.classes, result.confusion, strict=True):
        print(f"{value:>{width}} |", *(f"{n:>{width}}" for n in row))
    if json_file is not None:
        write_text(json_file, json.dumps(values, indent=2))


@app.command()
def info(
    model: Annotated[Path | None, typer.Argument(help="Model file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    system: Annotated[bool, typer.Option("--system", help="This machine in place of a model: what would run.")] = False,
) -> None:
    """Say what a model is: classes, features, forests, held-out scores, and the layers of a network.

    Example: hedgerow info model.hedge
    """
    if system == (model is not None):
        raise InputError("give either a model file or --system, to say what there is to compute with.")
    if model is None:
        from hedgerow.predict import devices

        found = devices.system()
        print(json.dumps(found) if as_json else "\n".join(f"{name}: {text}" for name, text in found.items()))
        return
    from hedgerow.io import model_file

    loaded = model_file.load(model)
    values = model_file.description(loaded)
    if as_json:
        print(json.dumps(values))
        return
    print(f"{model}: {megabytes(model.stat().st_size)}, trained on {values.get('n_images', '?')} image(s)")
    print(f"classes: {', '.join(map(str, loaded.classes))}")
    print(f"features: {loaded.features.n_features} ({loaded.features.kind}); looks {loaded.receptive_field} pixels far")
    for number, level in enumerate(values["levels"], start=1):
        held_out = values.get("held_out", [])
        score = f", held-out mean Dice {held_out[number - 1]['mean_dice']:.3f}" if number <= len(held_out) else ""
        print(f"level {number}: {level['trees']} trees, {level['leaves']} leaves, depth {level['depth']}{score}")
    if "mapped_back" in values:
        soft = f"; soft splits, tolerance {values['tolerance']:g}" if values["soft"] else ""
        print(f"mapped back from a network by {values['mapped_back']}{soft}")
    if "layers" in values:
        network.print_network(values)


@app.command()
def settings(
    command: Annotated[Stage, typer.Argument(help="The command they are for.")] = Stage.train,
) -> None:
    """Print the settings of `train` or `refine` with their defaults, as a file for its --config.

    Example: hedgerow settings > settings.toml
    """
    from hedgerow.config import RefineConfig, StackConfig, documented_toml

    print(documented_toml(StackConfig() if command is Stage.train else RefineConfig()), end="")


app.command()(network.refine)
app.command()(network.back)
app.command()(network.look)
app.command()(export.export)
app.command()(report.report)
app.command()(experiment.experiment)


@app.command()
def sample(
    kind: Annotated[Sample, typer.Argument(help="Which built-in generator.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder: images/ and labels/ are made in it.")],
    n_images: Annotated[int, typer.Option(help="How many images.")] = 16,
    seed: Annotated[int, typer.Option(help="Same seed, same images.")] = 0,
) -> None:
    """Write labelled images made by the built-in generators, to try things on.

    Example: hedgerow sample somites -o example/
    """
    from hedgerow.synthetic import write_sample

    write_sample(kind.value, output, n_images, seed)
    print(f"{n_images} image(s) in {output / 'images'}, their labels in {output / 'labels'}")
    depth = " --features depth" if kind is Sample.bodies else ""
    print(f"next: hedgerow train {output / 'images'} {output / 'labels'} -o model.hedge{depth}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model and the pictures.")] = Path(
        "demo-output"
    ),
    kind: Annotated[Sample, typer.Option("--data", help="Which built-in images.")] = Sample.somites,
) -> None:
    """Grow a stack on built-in images, map it to a network, refine that and map it back; show what each step gains.

    Example: hedgerow demo
    """
    from hedgerow.experiments.demo import run_demo

    run_demo(kind.value, output, say=print)


def main() -> None:
    """Run; bad input exits 2 with one sentence, a bug shows its traceback only with --debug."""
    debug = "--debug" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    if "--threads" in sys.argv[2:]:  # common to all commands, so it may also follow the command's name
        at = sys.argv.index("--threads")
        sys.argv[1:] = [*sys.argv[at : at + 2], *sys.argv[1:at], *sys.argv[at + 2 :]]
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        with heeding_interrupts():
            app()
    except HedgerowError as error:
        if debug:
            raise
        print(f"hedgerow: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as leaving:
        if leaving.code == INTERRUPTED:
            print("hedgerow: interrupted; nothing was left half-written.", file=sys.stderr)
        raise
    except Exception as error:
        if debug:
            raise
        print(
            f"hedgerow: unexpected {type(error).__name__}: {error} (add --debug for the details)",
            file=sys.stderr,
        )
        sys.exit(1)
