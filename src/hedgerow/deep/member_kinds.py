"""The kinds of members of a convolutional level.

A new kind is an entry of `MEMBER_KINDS` and its name in `config.DeepConfig.members`; a new class of network gets a file
beside `pretrained`.
"""

from dataclasses import dataclass

from hedgerow.deep.pretrained import PretrainedUNet
from hedgerow.deep.unet import UNet
from hedgerow.encoders.lite0 import Lite0

ALONE, READING, PRETRAINED = "alone", "reading", "pretrained"


@dataclass(frozen=True)
class MemberKind:
    """A kind of network in the ensemble.

    network:     class of the networks
    reads_stack: the networks read the stack's class probabilities, unless there are few images
    needs_stack: the member is left out if its networks cannot read them, because it would equal `ALONE`
    encoder:     encoder whose published weights the networks start from, "" for none; only every second network trains
                 them. Where they are not installed, `ALONE` takes the member's place
    """

    network: type[UNet]
    reads_stack: bool = True
    needs_stack: bool = False
    encoder: str = ""


MEMBER_KINDS = {
    ALONE: MemberKind(UNet, reads_stack=False),
    READING: MemberKind(UNet, needs_stack=True),
    PRETRAINED: MemberKind(PretrainedUNet, encoder=Lite0.name),
}
