"""A network that trains together with the last layers of the encoder of its features."""

from typing import cast

import numpy as np
from torch import Tensor, nn

from hedgerow.encoders.catalogue import PUBLISHED, last_shapes
from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.errors import ConfigError
from hedgerow.features.differentiable import standardised
from hedgerow.features.encoder import EncoderFeatures, encoder_of, with_changed
from hedgerow.features.protocol import FeatureSet
from hedgerow.network.layout import Source
from hedgerow.network.stacknet import StackNet


class TunedNet(StackNet):
    """A network while it is refined together with its encoder; `plain` makes it an ordinary one.

    encoder: the weights of the last stage that the features read, in the order of `names`; all others stay frozen
    """

    def __init__(self, net: StackNet) -> None:
        """net: its levels are shared with this network"""
        super().__init__(net.stack, [net.level(number) for number in range(net.n_levels)], net.output)
        _copy_state(net, self)
        read = encoder_of(net.features)
        assert read is not None, "`check_tunable` has refused the others"
        network = cast(TorchEncoder, read.network())
        self.names = tuple(_trained(read))
        self.encoder = nn.ParameterList([network.weights[name].detach().clone().to(net.device) for name in self.names])

    def weights(self) -> dict[str, Tensor]:
        """The encoder's weights that train, by name."""
        return dict(zip(self.names, self.encoder, strict=True))

    @property
    def features(self) -> FeatureSet:
        """The features with the current weights."""
        changed = {name: weight.detach().cpu().numpy().copy() for name, weight in self.weights().items()}
        return with_changed(super().features, changed)

    def source(self, planes: np.ndarray) -> Source:
        features = standardised(super().features, planes, self.weights())
        return Source(features if features.ndim == 4 else features[:, None])


def plain(net: StackNet) -> StackNet:
    """The network without training: if its encoder trained, the current weights become part of its features."""
    if not isinstance(net, TunedNet):
        return net
    copied = StackNet(net.stack, [net.level(number) for number in range(net.n_levels)], net.output)
    _copy_state(net, copied)
    copied.tuned = net.features
    return copied


def _copy_state(source: StackNet, target: StackNet) -> None:
    for name in ("settings", "refinements", "relaxed", "tuned", "walked"):
        setattr(target, name, getattr(source, name))


def _trained(read: EncoderFeatures) -> dict[str, tuple[int, ...]]:
    return last_shapes(read.source.encoder, [layer.name for layer in read.source.layers])


def check_tunable(features: FeatureSet) -> None:
    """Raise ConfigError unless the features come from an encoder that can be trained."""
    read = encoder_of(features)
    if read is None:
        raise ConfigError(
            f"train_encoder trains the last layers of an encoder, but these are {features.kind!r} features; leave it "
            "out, or train forests with features='encoder'."
        )
    if not _trained(read):
        name = read.source.encoder
        why = f"the weights in the last layers of {name[:60]} are not known here"
        if name.endswith(".onnx"):
            why = "an encoder from an ONNX file has no gradient"
        others = " or ".join(name for name in PUBLISHED if last_shapes(name, PUBLISHED[name].default_layers))
        raise ConfigError(f"{why}; leave train_encoder out, or train forests with the encoder {others}.")
