"""A U-Net that also reads features of EfficientNet-Lite0, a network trained on ImageNet, and can train it further.

With few images, its knowledge of edges, textures and objects helps much. All its weights become part of the model, so
that the model needs nothing else to run.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from hedgerow.deep.unet import Norm, UNet, block
from hedgerow.encoders.lite0 import STRIDES, Lite0, first_shapes, stage_outputs

PICTURE_STD = 0.5  # the network's input for one standard deviation of the image; it was trained on values from -1 to 1
PICTURE = "picture"  # the weights that turn the input planes into a picture of three channels
PRETRAINED_PREFIX = "pretrained."  # of the names of the encoder's weights


class PretrainedUNet(UNet):
    """On each scale below full resolution, it also reads the encoder's last stage of that stride.

    pretrained: the encoder's weights, which are trained at a lower rate
    joining:    for each scale below full resolution, the number of the encoder's stage, or None
    n_stages:   number of stages to compute
    """

    also_reads: ClassVar[str] = "features of EfficientNet-Lite0"

    def __init__(
        self, n_inputs: int, n_classes: int, base: int, n_down: int, widest: int, norm: Norm = "batch"
    ) -> None:
        super().__init__(n_inputs, n_classes, base, n_down, widest, norm)
        self.joining = [_last_stage(2**level) for level in range(1, n_down + 1)]
        for level, ((above, here), stage) in enumerate(zip(pairwise(self.widths), self.joining, strict=True), 1):
            self.down[level] = block(above + _channels(stage), here, norm)
        self.n_stages = max(stage or 0 for stage in self.joining)
        self._names = first_shapes(self.n_stages)
        shapes = {PICTURE: (3, n_inputs, 1, 1), **self._names}
        self.pretrained = nn.ParameterDict(
            {_key(name): nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()}
        )

    @property
    def sees_all(self) -> bool:
        """The coarsest stages depend on up to 425 pixels in each direction, though pixels so far away matter little."""
        return True

    def start_from(self, weights: Mapping[str, Tensor], n_image: int) -> None:
        with torch.no_grad():
            for name in self._names:
                self.pretrained[_key(name)].copy_(weights[name])
            self.pretrained[PICTURE].copy_(picture_weights(n_image, self.pretrained[PICTURE].shape[1]))

    def published(self) -> dict[str, Tensor]:
        """The present values of the published weights, by their names in `lite0`."""
        return {name: self.pretrained[_key(name)] for name in self._names}

    def beside(self, whole: Tensor) -> list[Tensor | None]:
        picture = functional.conv2d(whole, self.pretrained[PICTURE])
        stages = stage_outputs(self.published(), picture, self.n_stages)
        return [None if stage is None else stages[stage - 1] for stage in self.joining]


def picture_weights(n_image: int, n_inputs: int) -> Tensor:
    """(3,M,1,1): red, green and blue are the image's channels in order. One or two channels are repeated; of more than
    three, neighbours are averaged."""
    weights = torch.zeros(3, n_inputs, 1, 1)
    for colour in range(3):
        first = colour * n_image // 3
        end = max((colour + 1) * n_image // 3, first + 1)
        weights[colour, first:end] = PICTURE_STD / (end - first)
    return weights


def _last_stage(stride: int) -> int | None:
    """The number, from 1, of the last stage with this stride; None: there is none."""
    return len(STRIDES) - STRIDES[::-1].index(stride) if stride in STRIDES else None


def _channels(stage: int | None) -> int:
    return 0 if stage is None else Lite0.layers[stage - 1].n_channels


def _key(name: str) -> str:
    """The name without full stops, which PyTorch does not allow in names of weights."""
    return name.replace(".", "_")
