"""The frozen settings of each stage, with their limits as data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from hedgerow.choices import ENCODER_NAMES, FEATURES, LOSSES, described, known_features
from hedgerow.errors import ConfigError, shown
from hedgerow.settings import Checked, setting

MAX_SIGMAS = 100


@dataclass(frozen=True, repr=False)
class Sharpness(Checked):
    """Sharpness factors of one level of the network: the paper's alpha_1, alpha_2 and alpha_3."""

    split: float = setting(100.0, 1e-6, 1e6, "factor of the splits' weights and biases: how abrupt decisions are")
    leaf: float = setting(1.0, 1e-6, 1e6, "factor of the weights between splits and leaves, and of the leaves' biases")
    vote: float = setting(0.5, 1e-6, 1e6, "factor of the votes")
    proba: float = setting(
        0.0, 0.0, 1.0, "splits on probabilities are sharper by this, divided by their threshold's distance from 0 or 1"
    )


@dataclass(frozen=True, repr=False)
class ContextConfig(Checked):
    """The pixels that a split may read: the paper's contextual features and their random candidates."""

    window: int = setting(129, 1, 4097, "offsets are drawn within a window of this width in pixels")
    n_channels: int | None = setting(None, 1, 100_000, "channels drawn at each node; if unset, the square root of all")
    n_offsets: int = setting(10, 0, 10_000, "additional random offsets tried for each drawn channel")
    n_candidates: int | None = setting(None, 1, 1_000_000, "total number of candidates per node, instead of n_offsets")
    depth_candidates: int | None = setting(
        None, 1, 1_000_000,
        "depth features: candidates per node that compare depths, in addition to n_candidates on probabilities; if "
        "unset, all channels share n_candidates",
    )  # fmt: skip
    radii: tuple[int, ...] = setting((0,), 0, 256, "box radii a probe may average over; 0 is one pixel")
    n_probes: int = setting(1, 1, 16, "probes per split; more than one makes splits oblique")
    offset_sigma: float = setting(50.0, 1e-3, 1e5, "depth features: standard deviation of offsets, pixels x metres")
    depth_unit: float = setting(1000.0, 1e-6, 1e9, "depth features: image units per metre (1000 for millimetres)")
    nearest: float = setting(0.4, 1e-3, 1e6, "depth features: metres; anything nearer is treated as this near")
    background: float = setting(10.0, 1e-3, 1e6, "depth features: metres assigned to background and missing pixels")
    window_z: int | None = setting(
        None, 1, 257, "volumes: number of slices that offsets are drawn from; if unset, as far as the window reaches"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, width in (("window", self.window), ("window_z", self.window_z)):
            if width is not None and width % 2 == 0:
                raise ConfigError(f"ContextConfig.{name} is {width}; it must be odd, so that the window has a centre.")
        if self.nearest > self.background:
            raise ConfigError(
                f"ContextConfig.nearest is {self.nearest}; give at most the background, {self.background}."
            )
        if not self.radii:
            raise ConfigError("ContextConfig.radii is empty; give at least one radius, e.g. (0,).")


@dataclass(frozen=True, repr=False)
class SamplingConfig(Checked):
    """Which labelled pixels train the trees."""

    kind: Literal["grid", "per_class"] = setting(
        "grid", about="grid: a random fraction of a lattice; per_class: a fixed number of pixels per class"
    )
    step: int = setting(2, 1, 1000, "grid: every step-th row and column")
    fraction: float = setting(1.0, 1e-6, 1.0, "grid: fraction of the lattice that is used, drawn at random")
    at_least: int = setting(20, 1, 10**9, "grid: minimum per class and image (or all pixels), even off the lattice")
    max_samples: int = setting(400_000, 100, 10**9, "if there are more samples in total, this many are drawn at random")
    per_class: int = setting(20, 1, 10_000_000, "per_class: pixels per class and image")


@dataclass(frozen=True, repr=False)
class AugmentConfig(Checked):
    """Randomly altered copies of every training image, in addition to the originals."""

    copies: int = setting(0, 0, 100, "extra copies of each image")
    rotation: float = setting(180.0, 0.0, 180.0, "degrees, drawn between minus and plus this")
    tilt: float = setting(
        0.0, 0.0, 180.0,
        "volumes: degrees out of the plane, drawn between minus and plus this; above 0, copies are scaled and shifted "
        "along all three axes",
    )  # fmt: skip
    flip: bool = setting(False, about="mirror half of the copies")
    scale: float = setting(0.0, 0.0, 0.9, "relative size change, drawn between minus and plus this")
    shift: float = setting(0.0, 0.0, 0.9, "fraction of the image's height and width, drawn between minus and plus this")
    brightness: float = setting(0.0, 0.0, 10.0, "standard deviations of the image to add, between minus and plus this")
    contrast: float = setting(0.0, 0.0, 0.9, "relative contrast change, drawn between minus and plus this")


UNALTERED = AugmentConfig(rotation=0.0)


@dataclass(frozen=True, repr=False)
class EncoderConfig(Checked):
    """A pretrained network whose inner layers are features.

    >>> hr.StackConfig(features=("bank", "encoder"), encoder=hr.EncoderConfig(scale=2)).encoder
    EncoderConfig(scale=2.0)
    """

    name: str = setting("lite0", about=ENCODER_NAMES)
    layers: tuple[str, ...] = setting((), about="the layers to read; if empty, the usual layers of this network")
    n_components: int = setting(48, 1, 1024, "principal components of these layers that become features")
    scale: float | None = setting(
        None, 0.5, 2.0, "magnification of images for the network: 0.5, 1 or 2; if unset, 2 for mobilesam and else 1"
    )
    channels: Literal["auto", "each"] = setting(
        "auto", about="auto: every three channels are a colour picture; each: every channel is a grey picture"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale not in (None, 0.5, 1, 2):
            raise ConfigError(f"EncoderConfig.scale is {self.scale}; it must be 0.5, 1 or 2.")


@dataclass(frozen=True, repr=False)
class StackConfig(Checked):
    """A stack of forests and how it is grown.

    >>> hr.StackConfig(n_trees=8, sampling=hr.SamplingConfig(step=4))
    StackConfig(n_trees=8, sampling=SamplingConfig(step=4))
    """

    n_levels: int = setting(3, 1, 20, "K, number of forests in the stack")
    n_trees: int = setting(16, 1, 10_000, "T, number of trees in each forest")
    max_depth: int = setting(12, 1, 30, "D, splits on the longest path")
    min_split: int = setting(25, 2, 10**9, "a node with fewer samples becomes a leaf")
    min_leaf: int = setting(1, 1, 10**9, "a split leaves at least this many samples on each side")
    search_samples: int = setting(
        16_384, 256, 10**9, "a node with more samples searches for its split on an even subset of this size"
    )
    criterion: Literal["gini", "entropy"] = setting("gini", about="the impurity that a split reduces")
    balance: bool = setting(False, about="weight classes as if all had the same number of samples")
    bootstrap: bool = setting(True, about="each tree draws its samples with replacement")
    held_out: Literal["trees", "folds", "none"] = setting(
        "folds",
        about="how the previous level predicts images that it was not trained on: by trees that each skip some images, "
        "by extra forests without each of the folds, or not at all (as in the paper)",
    )
    reserve: float = setting(0.0, 0.0, 0.9, "fraction of the images that is held out of training, to score the model")
    drop_levels: bool = setting(True, about="discard the levels after the one with the best held-out score")
    skip: float = setting(0.34, 0.01, 0.9, "held_out=trees: fraction of the images that each tree skips")
    n_folds: int = setting(2, 2, 100, "held_out=folds: number of folds")
    votes: Literal["shares", "counts"] = setting(
        "shares",
        about="the votes of a leaf for a class: its share of the leaf's samples, or their number, which gives larger "
        "leaves more weight",
    )
    dimensions: Literal["auto", 2, 3] = setting(
        "auto",
        about="3: features and offsets of volumes reach into other slices; 2: they stay in their plane; auto: 3 for "
        "volumes",
    )
    features: str | tuple[str, ...] = setting("bank", about=f'{described(FEATURES)}; or several: ["bank", ...]')
    sigmas: tuple[float, ...] = setting((0.7, 1.0, 1.6, 3.5, 5.0, 10.0), 0.3, 500.0, "scales of the filter bank")
    normalise: bool = setting(
        False,
        about="filter bank: scale every image by the range of its own intensities (1 % to 99.8 % of its pixels), so "
        "that brightness and contrast do not count",
    )
    opponent: bool = setting(
        False,
        about="filter bank: filter the brightness of pictures of three channels, red against green, and blue against "
        "yellow, instead of red, green and blue",
    )
    encoder: EncoderConfig = setting(EncoderConfig())
    context: ContextConfig = setting(ContextConfig())
    sampling: SamplingConfig = setting(SamplingConfig())
    augment: AugmentConfig = setting(AugmentConfig())
    seed: int = setting(0, 0, 2**63 - 1, "the same seed gives the same model, with any number of threads")

    def __post_init__(self) -> None:
        super().__post_init__()
        named = tuple(self.features.split("+")) if isinstance(self.features, str) else self.features
        for name in named:
            if name.startswith("encoder:"):
                chosen = name.removeprefix("encoder:")
                layers = self.encoder.layers if chosen == self.encoder.name else ()  # layers belong to a network
                object.__setattr__(self, "encoder", dataclasses.replace(self.encoder, name=chosen, layers=layers))
        kinds = tuple("encoder" if name.startswith("encoder:") else name for name in named)
        for name in kinds:
            if name not in known_features:
                raise ConfigError(
                    f"StackConfig.features is {shown(name)}; it must be one of {', '.join(known_features)}, or several."
                )
        if not kinds or len(set(kinds)) < len(kinds):
            raise ConfigError(f"StackConfig.features is {shown(self.features)}; give one or more different kinds.")
        object.__setattr__(self, "features", kinds if len(kinds) > 1 else kinds[0])
        if "bank" in kinds and not self.sigmas:
            raise ConfigError("StackConfig.sigmas is empty; give at least one scale, e.g. (1.0, 3.5).")
        if self.held_out == "trees" and self.n_trees < 2:
            raise ConfigError(
                "StackConfig.held_out is 'trees', which needs at least 2 trees; raise n_trees, or use 'folds'."
            )
        if len(self.sigmas) > MAX_SIGMAS:
            raise ConfigError(f"StackConfig.sigmas has {len(self.sigmas)} scales; it must have at most {MAX_SIGMAS}.")

    def to_dict(self) -> dict[str, Any]:
        """The settings in the form of JSON and TOML. Without any for volumes, they are those that were stored before
        there were volumes."""
        values = super().to_dict()
        if self.dimensions == "auto" and self.context.window_z is None:
            values["context"]["window_z"] = 1
            del values["dimensions"]
            if self.augment.tilt == 0:
                del values["augment"]["tilt"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> StackConfig:
        config = super().from_dict(values)
        if "dimensions" in values or config.context.window_z != 1:
            return config
        return dataclasses.replace(config, context=dataclasses.replace(config.context, window_z=None))

    @classmethod
    def zebrafish(cls, **changes: Any) -> StackConfig:
        """The paper's somite experiment: 3 levels, rotated copies, a 129 x 129 window, no held-out predictions."""
        preset = cls(
            n_levels=3, n_trees=16, max_depth=12, min_split=25, held_out="none", search_samples=10**9,
            sampling=SamplingConfig(step=3, fraction=0.25, at_least=1, max_samples=10**9),
            augment=AugmentConfig(copies=2),
        )  # fmt: skip
        return dataclasses.replace(preset, **changes)

    @classmethod
    def kinect(cls, **changes: Any) -> StackConfig:
        """The paper's body part experiment: 2 levels of 10 trees on depth features, 20 samples per class and image."""
        preset = cls(
            n_levels=2, n_trees=10, max_depth=12, min_split=25, features="depth", held_out="none",
            search_samples=10**9, context=ContextConfig(n_candidates=100, depth_candidates=100),
            sampling=SamplingConfig(kind="per_class", per_class=20, max_samples=10**9),
            augment=AugmentConfig(copies=0),
        )  # fmt: skip
        return dataclasses.replace(preset, **changes)


# Default number of pixels in a refinement step. More would help on a CPU, too, but would take longer.
STEP_PIXELS, GPU_STEP_PIXELS = 8000, 2**17


@dataclass(frozen=True, repr=False)
class RefineConfig(Checked):
    """How a network is refined: one newly altered image per step, on a lattice of its pixels.

    >>> hr.RefineConfig(n_steps=500, augment=hr.AugmentConfig(flip=True)).n_steps
    500
    """

    n_steps: int = setting(300, 1, 10**7, "training steps, each of one image")
    optimiser: Literal["adam", "sgd"] = setting("adam", about="adam, or sgd as in the paper")
    learning_rate: float = setting(0.03, 1e-12, 1e3, "a; adam: rate of the votes, relative to their sharpness")
    split_rate: float = setting(0.5, 0.0, 1e3, "adam: rate of the splits, relative to the votes' rate")
    decay: Literal["cosine", "halving"] = setting("cosine", about="cosine: 0 at the end; halving: a / (1 + step / b)")
    halving_steps: float = setting(96.0, 1e-6, 1e9, "b, the step at which the halving rate is half of a")
    max_momentum: float = setting(0.95, 0.0, 0.9999, "sgd: momentum rises as 1 - 3 / (step + 5) up to this")
    first_momentum: float | None = setting(None, 0.0, 0.9999, "sgd: start with this momentum, instead of the rise")
    momentum_steps: int = setting(96, 0, 10**7, "sgd: steps at first_momentum, if given, before max_momentum")
    relax: float = setting(0.1, 1e-6, 1.0, "the splits of a newly mapped network are first softened by this factor")
    loss: str = setting("cross_entropy", choices=LOSSES)
    dice: float = setting(1.0, 0.0, 1e3, "weight of the added Dice loss, which counts classes, not pixels")
    leaf_l1: float = setting(0.0, 0.0, 1e3, "weight of the sum of leaf activations; tanh splits only")
    leaf_entropy: float = setting(0.0, 0.0, 1e3, "weight of the entropy of leaf membership; soft splits only, slow")
    stride: int | None = setting(None, 1, 1000, "train on every stride-th row and column; if unset, see `pixels`")
    pixels: int | None = setting(
        None, 1, 10**9,
        f"approximate pixels per step, if stride is unset; default {STEP_PIXELS:,}, on a GPU {GPU_STEP_PIXELS:,}",
    )  # fmt: skip
    crop: int | None = setting(None, 16, 100_000, "side of the random crops to train on; if unset, whole images")
    trim: bool = setting(False, about="depth images: leave out the empty border")
    augment: AugmentConfig = setting(AugmentConfig(rotation=15.0, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2))
    held_out: float = setting(
        0.15, 0.0, 0.9,
        "fraction of the images (at most 32) used only for scoring, of those that the forests did not see",
    )  # fmt: skip
    check_every: int = setting(25, 1, 10**7, "steps between scores, each followed by a checkpoint")
    patience: int | None = setting(None, 1, 10**6, "stop after this many scores without improvement")
    keep: Literal["last", "best"] = setting("last", about="which network to return: the last, or the best by score")
    average: float = setting(0.0, 0.0, 0.9999, "decay of a running mean of the weights that replaces them; 0: none")
    tolerance: float = setting(1e-3, 0.0, 0.5, "branches with a smaller share of a pixel than this are skipped")
    train_encoder: bool = setting(
        False, about="encoder features: the last layers of the pretrained network train with the rest"
    )
    encoder_rate: float = setting(
        0.3, 0.0, 1e3, "train_encoder: rate of the encoder's weights, relative to the votes' rate and to their own size"
    )
    seed: int = setting(0, 0, 2**63 - 1, "the same seed gives the same network")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augment.copies:
            raise ConfigError("RefineConfig.augment alters every image anew, so copies do nothing; leave them at 0.")

    @classmethod
    def kinect(cls, **changes: Any) -> RefineConfig:
        """The paper's body part experiment; every fifth row and column makes its 25 times fewer pixels."""
        preset = cls(
            n_steps=8000, optimiser="sgd", learning_rate=0.01, decay="halving", halving_steps=400.0, max_momentum=0.95,
            relax=1.0, dice=0.0, stride=5, trim=True, augment=UNALTERED, held_out=0.0, tolerance=0.0,
        )  # fmt: skip
        return dataclasses.replace(preset, **changes)

    @classmethod
    def zebrafish(cls, **changes: Any) -> RefineConfig:
        """The paper's somite experiment: two passes over 48 images at each momentum."""
        preset = cls(
            n_steps=192, optimiser="sgd", learning_rate=0.01, decay="halving", halving_steps=96.0, max_momentum=0.7,
            first_momentum=0.4, momentum_steps=96, relax=1.0, loss="balanced", dice=0.0, stride=9, augment=UNALTERED,
            held_out=0.0, tolerance=0.0,
        )  # fmt: skip
        return dataclasses.replace(preset, **changes)


@dataclass(frozen=True, repr=False)
class ConvConfig(Checked):
    """A convolutional network, a U-Net, and how it is trained.

    >>> hr.ConvConfig(base=16, n_steps=500).n_down
    4
    """

    base: int = setting(16, 1, 1024, "channels at full resolution; each level has twice as many as the one above")
    n_down: int = setting(4, 1, 6, "levels below full resolution, each at half the resolution of the one above")
    widest: int = setting(512, 1, 4096, "no level has more channels than this")
    norm: Literal["batch", "image"] = setting(
        "batch", about="channels are normalised by their statistics in training (batch) or in the current image (image)"
    )
    n_steps: int = setting(1500, 1, 10**7, "training steps, each of one batch")
    batch: int = setting(4, 1, 1024, "crops in a batch")
    crop: int = setting(256, 16, 4096, "side of the random crops in pixels; smaller images are used whole")
    learning_rate: float = setting(3e-3, 1e-8, 1.0, "the highest, reached after a third of the steps; see `one_cycle`")
    weight_decay: float = setting(1e-2, 0.0, 1.0, "of AdamW")
    dice: float = setting(1.0, 0.0, 1e3, "weight of the added Dice loss, which counts classes, not pixels")
    augment: AugmentConfig = setting(AugmentConfig(rotation=15.0, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2))
    drop: float = setting(
        0.5, 0.0, 1.0,
        "fraction of the crops without the output of the stack, for networks that read it; every other network of the "
        "member `reading` always gets it",
    )  # fmt: skip
    orientations: int = setting(
        1, 1, 8, "predict the mean over this many turned and mirrored copies; 8, all of them, if images have no top"
    )
    check_every: int = setting(100, 1, 10**7, "steps between scores on held-out images, each followed by a checkpoint")
    seed: int = setting(0, 0, 2**63 - 1, "the same seed gives the same network")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base > self.widest:
            raise ConfigError(f"ConvConfig.base is {self.base}; it must be at most widest, {self.widest}.")
        if self.augment.copies:
            raise ConfigError("ConvConfig.augment alters every image anew, so copies do nothing; leave them at 0.")


@dataclass(frozen=True, repr=False)
class DeepConfig(Checked):
    """A convolutional level on top of a stack, and the members that it combines; see `deepen`.

    >>> hr.DeepConfig(members=("alone",), conv=hr.ConvConfig(n_steps=500)).n_folds
    4
    """

    members: tuple[Literal["alone", "reading", "pretrained"], ...] = setting(
        ("alone", "reading", "pretrained"),
        about="kinds of networks: alone reads the image; reading also reads the output of the stack; pretrained reads "
        "both and includes EfficientNet-Lite0, if the extra `pretrained` is installed",
    )
    n_folds: int = setting(4, 2, 32, "folds of the images; another stack is trained without each fold, to predict it")
    n_networks: int = setting(2, 1, 32, "networks of each member; their outputs are averaged")
    judges: int = setting(
        2, 0, 2, "additional networks of each member, not part of the model, that hold out a part of the images and "
        "are scored on it; 0: two networks of the model do so, if there are two, and become a little worse",
    )  # fmt: skip
    left_out: int = setting(8, 2, 256, "judges hold out one in this many images")
    fewest: int = setting(
        5, 2, 1000,
        "with fewer images, no network reads the stack, one judge of each member holds out an image or parts of it, "
        "and all networks have the same weight unless that is far worse",
    )  # fmt: skip
    features: Literal["none", "encoder", "all"] = setting(
        "none", about="features of the stack that the networks also read: those of its pretrained encoder, or all"
    )
    conv: ConvConfig = setting(ConvConfig())
    seed: int = setting(0, 0, 2**63 - 1, "the same seed gives the same model")
