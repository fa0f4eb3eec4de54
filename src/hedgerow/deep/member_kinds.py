"""The kinds of members of a convolutional level.

A new kind is an entry of `KINDS` and its name in `config.DeepConfig.members`; if its networks are of a new class, that
class is a file beside `pretrained`.
"""

from dataclasses import dataclass

from hedgerow.deep.pretrained import PretrainedUNet
from hedgerow.deep.unet import UNet
from hedgerow.encoders.lite0 import Lite0

ALONE, READING, PRETRAINED = "alone", "reading", "pretrained"


@dataclass(frozen=True)
class MemberKind:
    """A kind of network in the ensemble.

    network:     the class of its networks
    reads_stack: whether they read the stack's class probabilities; with few images no network does
    needs_stack: whether it is left out where it cannot read them, since it would be `ALONE` without
    encoder:     the encoder whose published weights its networks start from, so that `ALONE` takes its place where they
                 are not installed; only every other network trains them. "": none
    """

    network: type[UNet]
    reads_stack: bool = True
    needs_stack: bool = False
    encoder: str = ""


KINDS = {
    ALONE: MemberKind(UNet, reads_stack=False),
    READING: MemberKind(UNet, needs_stack=True),
    PRETRAINED: MemberKind(PretrainedUNet, encoder=Lite0.name),
}
