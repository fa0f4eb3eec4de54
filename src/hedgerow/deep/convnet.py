"""`ConvNet`: a trained convolutional network with everything needed to run it. No training code here."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hedgerow.deep.unet import UNet, padded
from hedgerow.encoders.torch_devices import full_precision


@dataclass(frozen=True, eq=False)
class InputScale:
    """Standardises the planes (M,H,W) of an image by the training images.

    mean, std: (M,) float32
    blank:     pixel value that means "nothing was seen" (depth), or None; one more plane then marks the other pixels
    """

    mean: np.ndarray
    std: np.ndarray
    blank: float | None = None

    @property
    def n_outputs(self) -> int:
        return len(self.mean) + (self.blank is not None)

    def apply(self, planes: np.ndarray) -> np.ndarray:
        """(M,H,W) float32, with one plane more if pixels may be blank; blank pixels become 0, the mean."""
        scaled = (planes - self.mean[:, None, None]) / self.std[:, None, None]
        if self.blank is None:
            return np.asarray(scaled, np.float32)
        seen = (planes != self.blank).all(axis=0, keepdims=True)
        return np.concatenate([np.where(seen, scaled, 0), seen]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class ConvNet:
    """A trained network. It reads the image, and perhaps features and class probabilities of the stack.

    features:     start and end of the stack's features that it reads; equal: none
    reads:        whether it reads the class probabilities of the previous level
    orientations: number of rotated and mirrored images whose predictions are averaged
    """

    network: UNet
    scale: InputScale
    features: tuple[int, int] = (0, 0)
    reads: bool = False
    orientations: int = 1

    @property
    def reads_features(self) -> bool:
        return self.features[0] < self.features[1]

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def reads_in_words(self, n_features: int) -> str:
        """What it reads, e.g. "the image and the stack's class probabilities"; n_features: all features of the stack"""
        first, end = self.features
        inputs = ["the image"]
        if self.reads_features:
            inputs.append(f"{'all ' if end - first == n_features else ''}{end - first} features of the stack")
        if self.reads:
            inputs.append("the stack's class probabilities")
        if self.network.also_reads:
            inputs.append(self.network.also_reads)
        return inputs[0] if len(inputs) == 1 else f"{', '.join(inputs[:-1])} and {inputs[-1]}"

    def moved(self, device: str) -> "ConvNet":
        return replace(self, network=copy.deepcopy(self.network).to(device))

    def read(self, image: np.ndarray, features: np.ndarray | None, before: np.ndarray | None) -> Tensor:
        """The input (M+F+C,H,W) of the network, on its device.

        image:    (M,H,W)
        features: (F,H,W) the features that it reads; None: it reads none
        before:   (C,H,W) class probabilities of the previous level; None: it does not read them
        """
        parts = [self.scale.apply(image)]
        if self.reads_features:
            assert features is not None
            parts.append(features)
        if self.reads:
            assert before is not None
            parts.append(before)
        planes = np.concatenate(parts) if len(parts) > 1 else parts[0]
        return torch.from_numpy(np.ascontiguousarray(planes, np.float32)).to(self.device)

    def proba(self, image: np.ndarray, features: np.ndarray | None, before: np.ndarray | None) -> np.ndarray:
        """(C,H,W) float32 class probabilities, without tiles; arguments as of `read`."""
        height, width = image.shape[1:]
        whole = padded(self.read(image, features, before)[None], self.network.stride)
        total: Tensor | None = None
        with torch.inference_mode(), full_precision():
            for number in range(self.orientations):
                seen = turned(whole, number).contiguous(memory_format=torch.channels_last)
                proba = turned_back(torch.softmax(self.network(seen), dim=1), number)
                total = proba if total is None else total + proba
            assert total is not None
            return (total / self.orientations)[0, :, :height, :width].cpu().numpy()


def turned(planes: Tensor, number: int) -> Tensor:
    """(N,M,H,W) or (N,M,W,H): the planes in orientation 0 to 7; numbers from 4 are mirrored."""
    mirrored = planes.flip(3) if number >= 4 else planes
    return torch.rot90(mirrored, number % 4, (2, 3))


def turned_back(planes: Tensor, number: int) -> Tensor:
    """The inverse of `turned`."""
    back = torch.rot90(planes, -(number % 4), (2, 3))
    return back.flip(3) if number >= 4 else back
