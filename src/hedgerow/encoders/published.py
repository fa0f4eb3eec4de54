"""What the encoders with published weights have in common: they hold these, and run in one thread without gradients."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.encoders.torch_devices import OneThread, device, full_precision


class PublishedEncoder(TorchEncoder):
    """A subclass has `name`, `layers`, `usual`, `multiple` and `outputs`."""

    def __init__(self, weights: Mapping[str, Tensor], checksum: str) -> None:
        self.weights, self.checksum = dict(weights), checksum

    def run(self, picture: np.ndarray, names: Sequence[str]) -> list[np.ndarray]:
        with torch.inference_mode(), OneThread(), full_precision():
            found = self.outputs(torch.from_numpy(picture).to(device()), names)
            return [layer.cpu().numpy() for layer in found]
