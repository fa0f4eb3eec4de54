"""Choices by name: each is one line here and one file, which is loaded when the choice is used.

Settings and the command line take their choices and help texts from these tables.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Choice:
    """about: a few words of help; place: "module:name" of the implementation, below the package"""

    about: str
    place: str

    def load(self) -> Any:
        return load(self.place)


def load(place: str) -> Any:
    """The object at "module:name" below the package."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"hedgerow.{module}"), name)


LOSSES: Mapping[str, Choice] = {
    "cross_entropy": Choice("the mean over labelled pixels", "refinement.losses:cross_entropy"),
    "balanced": Choice("all classes carry the same weight", "refinement.losses:balanced"),
    "class_sum": Choice(
        "the sum of the means of the classes in the image: steeper by the number of classes",
        "refinement.losses:class_sum",
    ),
}
EXPORT_FORMATS: Mapping[str, Choice] = {
    "c": Choice("C99 source, for forests", "export.c:write"),
    "onnx": Choice("ONNX, for any model", "export.onnx_model:write"),
}


FEATURES: Mapping[str, Choice] = {
    "bank": Choice("filter bank", "features.bank:Bank"),
    "channels": Choice("the image's own channels", "features.channels:Channels"),
    "depth": Choice("scale-invariant features of depth images", "features.depth:Depth"),
    "encoder": Choice("inner layers of a pretrained network", "features.encoder:EncoderFeatures"),
}
known_features: dict[str, None] = dict.fromkeys(FEATURES)
"""The names of all features, including those added by `features.registry.register`."""
ENCODERS: Mapping[str, str] = {
    "lite0": "encoders.lite0:Lite0",
    "lite2": "encoders.lite0:Lite2",
    "mobilesam": "encoders.mobilesam:MobileSam",
    "litemedsam": "encoders.mobilesam:LiteMedSam",
    "vgg16": "encoders.vgg16:Vgg16",
}
"""Name -> place; the classes there describe the rest."""
ENCODER_NAMES = f"{', '.join(ENCODERS)}, timm:NAME, or the path of an .onnx file"


def described(choices: Mapping[str, Choice]) -> str:
    """For help: "cross_entropy: the mean over labelled pixels; balanced: ..." """
    return "; ".join(f"{name}: {choice.about}" for name, choice in choices.items())
