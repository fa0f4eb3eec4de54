"""The commands that describe models: report, look, info."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow import jobs
from hedgerow.cli.common import Result
from hedgerow.cli.options import Images, Labels, Model, Overwrite, Pages, output_option
from hedgerow.deep.record import held_out_words
from hedgerow.errors import InputError
from hedgerow.images.pairing import split_images_and_labels
from hedgerow.memory import megabytes


def report(
    model: Model,
    images: Images,
    labels: Labels,
    output: Annotated[Path, output_option("Page to write, e.g. report.html.")],
    also: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", readable=False, help="Another model to compare with the first; repeatable."),
    ] = None,
    background: Annotated[int | None, typer.Option(help="Background class, shown dark and scored separately.")] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    pages: Pages = None,
    overwrite: Overwrite = False,
) -> Result:
    """Write one HTML page about models: scores, errors, confused classes, and what the forests look at.

    Give images that the models were not trained on. A network is compared with the forests it came from, and a model
    with a convolutional level also with its network.

    Example: hedgerow report net.hedge test_photos/ test_painted/ -o report.html
    """
    models = [model, *(also or [])]
    request = jobs.ReportRequest(
        models, *split_images_and_labels([*images, labels]), output, background=background, title=title, pages=pages,
        overwrite=overwrite,
    )  # fmt: skip
    n_images = jobs.report(request, say=print)
    print(f"{output}: {n_images} image(s), {megabytes(output.stat().st_size)}; open it in a browser")
    return {"page": str(output), "bytes": output.stat().st_size, "images": n_images}


def look(
    model: Model,
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Image file.")],
    output: Annotated[Path, output_option("Figure to write: .png, .pdf or .svg.")],
    truth: Annotated[str | None, typer.Option(metavar="FILE", help="Label map to show beside the predictions.")] = None,
    classes: Annotated[
        list[int] | None,
        typer.Option("--class", metavar="CLASS", help="Class to show, repeatable; by default the most frequent ones."),
    ] = None,
    pages: Pages = None,
    overwrite: Overwrite = False,
) -> Result:
    """Draw the output of each level for each class: probabilities of the forests beside activations of the network.

    A convolutional level, if the model has one, is drawn below them.

    Example: hedgerow look net.hedge photo.png -o inside.png
    """
    shown = jobs.look(jobs.LookRequest(model, image, output, truth, classes, pages, overwrite))
    features = shown.features.title
    print(f"{output}: {len(shown.classes)} classes, {shown.n_levels} level(s), features {features}")
    return {
        "figure": str(output), "classes": list(shown.classes), "levels": shown.n_levels, "features": features,
    }  # fmt: skip


def info(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", readable=False, help="Model file.")] = None,
    system: Annotated[bool, typer.Option("--system", help="Describe this machine instead of a model.")] = False,
) -> Result:
    """Describe a model: classes, features, forests, held-out scores, network layers and members.

    Example: hedgerow info model.hedge
    """
    if system == (model is not None):
        raise InputError("give either a model file, or --system to see which devices are available.")
    values: dict[str, Any] = jobs.describe_system() if model is None else jobs.describe(model)
    if model is None:
        print("\n".join(f"{name}: {text}" for name, text in values.items()))
    else:
        n_trained = values["n_images"] - values.get("reserved", {}).get("n_images", 0) if "n_images" in values else "?"
        noun = "volume" if "volumes" in values else "image"
        print(f"{model}: {megabytes(model.stat().st_size)}, trained on {n_trained} {noun}(s)")
        _print_forests(values)
        if "layers" in values:
            _print_network(values)
        if "convolutional" in values:
            _print_convolutional(values["convolutional"])
    return values


def _print_forests(values: dict[str, Any]) -> None:
    features = values["features"]
    members = features.get("members", [features])
    kinds = "+".join(":".join(filter(None, (member["kind"], member.get("encoder")))) for member in members)
    names = {row["value"]: row["name"] for row in values["legend"] if "name" in row}
    called = [f"{value} {names[value]}" if value in names else str(value) for value in values["classes"]]
    print(f"classes: {', '.join(called)}")
    print(f"features: {len(features['names'])} ({kinds}); receptive field: {values['receptive_field']} px")
    if "volumes" in values:
        print(f"reads volumes whose z planes are {values['volumes']['anisotropy']:.4g} pixels apart")
    held_out = values.get("held_out", [])
    for number, level in enumerate(values["levels"], start=1):
        score = f", held-out mean Dice {held_out[number - 1]['mean_dice']:.3f}" if number <= len(held_out) else ""
        print(f"level {number}: {level['trees']} trees, {level['leaves']} leaves, depth {level['depth']}{score}")
    for number, left_out in enumerate(held_out[len(values["levels"]) :], start=len(values["levels"]) + 1):
        print(f"level {number} was discarded: held-out mean Dice {left_out['mean_dice']:.3f}")
    if "reserved" in values:
        print(f"mean Dice {values['reserved']['mean_dice']:.3f} on {values['reserved']['n_images']} reserved image(s)")
    if "mapped_back" in values:
        soft = f"; soft splits, tolerance {values['tolerance']:g}" if values["soft"] else ""
        print(f"mapped back from a network by {values['mapped_back']}{soft}")


def _print_network(values: dict[str, Any]) -> None:
    """The layers of a network and its refinements."""
    print(f"network: {values['split']} splits, {len(values['layers']) - 1} hidden layers")
    for layer in values["layers"]:
        print(f"  {layer['name']:<7} {layer['neurons']:>9,} neurons  {layer['weights']:>11,} weights  {layer['about']}")
    for number, alpha in enumerate(values["sharpness"], start=1):
        print(
            f"  sharpness of level {number}: split {alpha['split']:g}, leaf {alpha['leaf']:g}, vote {alpha['vote']:g}"
        )
    for record in values["refined"]:
        text = ", ".join(f"{what} {score:.3f}" for what, score in record["scores"].items())
        scores = f"; mean Dice on {record['n_scored']} held-out image(s): {text}" if text else ""
        print(f"refined for {record['history'][-1]['step']} steps{scores}")
    if "tuned_encoder" in values:
        name, n_weights = (values["tuned_encoder"][key] for key in ("name", "weights"))
        print(f"the last layers of the encoder {name} were trained with the network: {n_weights:,} weights")


def _print_convolutional(level: dict[str, Any]) -> None:
    """The members of a convolutional level and their held-out scores."""
    receptive_field = f"receptive field: {level['receptive_field']} px"
    n_members = sum(member["weight"] > 0 for member in level["members"])
    print(f"convolutional level: {n_members} member(s), averaged with these weights; {receptive_field}")
    for member in level["members"]:
        print(
            f"  {member['name']:<8} {_scored(member['dice'])}  weight {member['weight']:.3f}  {_network_words(member)}"
        )
    print(f"  {'together':<8} {_scored(level['together'])}")
    where = held_out_words(level["held"], level["n_held"])
    print(f"  held out: {where}, each predicted by networks that did not see it")


def _scored(dice: float | None) -> str:
    return f"held-out mean Dice {'    –' if dice is None else f'{dice:.3f}'}"


def _network_words(member: dict[str, Any]) -> str:
    """A member in words: its networks, and the images they read."""
    if not member["n_networks"]:
        if member["name"] != "stack":
            return "left out: the others score better without it"
        return "the network above" + ("" if member["weight"] else ", which has weight 0")
    widths = "-".join(map(str, member["channels"]))
    size = f"{member['n_networks']} U-Net(s) of {len(member['channels'])} scales, channels {widths}"
    return f"{size}, {member['n_weights']:,} weights in all; they read {member['reads']}"
