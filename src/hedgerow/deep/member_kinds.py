"""The kinds of members of a convolutional level.

A new kind is an entry of `KINDS` and its name in `config.DeepConfig.members`; if its networks are of a new class, that
class is a file beside `pretrained`.
"""

from dataclasses import dataclass

from hedgerow.deep.pretrained import PretrainedUNet
from hedgerow.deep.unet import UNet

ALONE, READING, PRETRAINED = "alone", "reading", "pretrained"


@dataclass(frozen=True)
class MemberKind:
    """A kind of network in the ensemble.

    network:       the class of its networks
    reads_stack:   whether they read the stack's class probabilities; with few images no network does
    needs_stack:   whether it is left out where it cannot read them, since it would be `ALONE` without
    needs_encoder: whether `ALONE` takes its place where the pretrained weights are not installed
    """

    network: type[UNet]
    reads_stack: bool = True
    needs_stack: bool = False
    needs_encoder: bool = False


KINDS = {
    ALONE: MemberKind(UNet, reads_stack=False),
    READING: MemberKind(UNet, needs_stack=True),
    PRETRAINED: MemberKind(PretrainedUNet, needs_encoder=True),
}
