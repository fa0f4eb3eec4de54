"""Batches to train a convolutional network on: crops of images, altered differently at every step.

The alterations agree with `images.altering`, which alters an image on the CPU. Here, the image, its labels and other
inputs are altered together, on the network's device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hedgerow.config import ConvConfig
from hedgerow.deep.convnet import ConvNet, InputScale
from hedgerow.images.altering import Move, drawn_light, drawn_move, still
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage


@dataclass(frozen=True, eq=False)
class Sheet:
    """One image as a network reads it.

    planes:   (M,H,W) float32: the standardised image, and what else the network reads; class probabilities of the
              previous level come from a model that did not see the image
    n_inputs: number of planes of the image, which come first
    target:   (H,W) uint8 class index, UNLABELLED_INDEX where there is no label
    n_before: number of planes with class probabilities of the previous level, which come last
    is_blank: there may be pixels where nothing was seen (depth), with the value 0; then pixels are copied and never
              interpolated, and the last plane of the image is 1 where something was seen
    """

    planes: Tensor
    n_inputs: int
    target: Tensor
    n_before: int = 0
    is_blank: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """(H, W)"""
        return self.target.shape[0], self.target.shape[1]

    @cached_property
    def labelled_places(self) -> np.ndarray:
        """(S,2) the labelled pixels."""
        return np.argwhere(self.target.cpu().numpy() != UNLABELLED_INDEX).astype(np.int32)

    @cached_property
    def light(self) -> tuple[Tensor, Tensor]:
        """(M,1,1) each: mean and standard deviation of each plane; the deviation is 0 for planes without brightness."""
        mean = self.planes.mean(dim=(1, 2), keepdim=True)
        spread = self.planes.std(dim=(1, 2), keepdim=True, correction=0)
        is_image = (torch.arange(len(self.planes), device=self.planes.device) < self.n_inputs)[:, None, None]
        return mean, spread * is_image


def fit_scale(images: Sequence[LabelledImage], blank: float | None) -> InputScale:
    """Mean and standard deviation of every channel over all pixels that are not blank."""
    values = [image.planes.reshape(len(image.planes), -1) for image in images]
    if blank is not None:
        values = [value[:, (value != blank).all(axis=0)] for value in values]
    n = max(sum(value.shape[1] for value in values), 1)
    mean = sum(value.sum(axis=1, dtype=np.float64) for value in values) / n
    spread = sum(((value - mean[:, None]) ** 2).sum(axis=1, dtype=np.float64) for value in values)
    std = np.sqrt(spread / n)
    std = np.where(std > 1e-9 * np.abs(mean), std, 1.0)
    return InputScale(np.asarray(mean, np.float32), std.astype(np.float32), blank)


def sheet_of(net: ConvNet, image: LabelledImage, features: np.ndarray | None, before: np.ndarray | None) -> Sheet:
    """A labelled image as the network reads it, on its device; features, before: as in `ConvNet.read`."""
    target = torch.from_numpy(np.array(image.target)).to(net.device)
    n_before = len(before) if net.reads and before is not None else 0
    planes = net.read(image.planes, features, before)
    return Sheet(planes, net.scale.n_outputs, target, n_before, net.scale.blank is not None)


@dataclass(frozen=True)
class Batch:
    """planes: (N,M,h,w); target: (N,h,w) int64"""

    planes: Tensor
    target: Tensor


def draw_batch(sheets: Sequence[Sheet], config: ConvConfig, step: int) -> Batch:
    """The batch of a step: random crops of randomly altered images, each with a labelled pixel.

    All images are drawn equally often; random choices depend only on the seed and the step.
    """
    rng = np.random.default_rng((config.seed, 11, step))
    drawn = [sheets[_turn(len(sheets), config, step * config.batch + k)] for k in range(config.batch)]
    sides = [min(config.crop, max(sheet.size[axis] for sheet in sheets)) for axis in range(2)]
    moves, corners, lights = [], [], []
    for sheet in drawn:
        move, places = drawn_move(sheet.size, config.augment, rng), sheet.labelled_places
        chosen = places[int(rng.integers(len(places)))]
        place = move.forward(chosen)
        if not ((place >= 0) & (place <= np.array(sheet.size) - 1)).all():  # it was moved out of the image
            move, place = still(sheet.size), chosen
        moves.append(move)
        corners.append([_corner(place[axis], sheet.size[axis], sides[axis], rng) for axis in range(2)])
        lights.append(drawn_light(config.augment, rng))
    source = _sources(moves, corners, sides, drawn[0].planes.device)
    # On a GPU, copying whole images is faster than starting kernels for each; a CPU reads only the pixels it needs.
    is_quick = source.is_cuda and len({sheet.size for sheet in drawn}) == 1
    n = len(drawn) if is_quick else 1
    each = [_parts(drawn[k : k + n], source[k : k + n]) for k in range(0, len(drawn), n)]
    planes, target = (torch.cat([part[which] for part in each]) for which in range(2))
    planes = (_nearer if drawn[0].is_blank else _lit)(planes, drawn, lights)
    if drawn[0].n_before:
        _drop(planes[:, -drawn[0].n_before :], config, step)
    return Batch(planes, target)


def _drop(before: Tensor, config: ConvConfig, step: int) -> None:
    """Set the probabilities (N,C,h,w) of the previous level to 0 in some crops, so that a network does not just copy
    them."""
    gone = np.random.default_rng((config.seed, 13, step)).random(len(before)) < config.drop
    before[np.flatnonzero(gone).tolist()] = 0


def _turn(n: int, config: ConvConfig, number: int) -> int:
    """The image to draw next: all n images in random order, then all again."""
    order = np.random.default_rng((config.seed, 12, number // n)).permutation(n)
    return int(order[number % n])


def _corner(place: float, length: int, side: int, rng: np.random.Generator) -> int:
    """The first row or column of a crop that contains a place, and lies within the image unless it is larger."""
    if side >= length:
        return -((side - length) // 2)  # the image is in the middle
    return int(np.clip(round(place) - int(rng.integers(side)), 0, length - side))


def _sources(
    moves: Sequence[Move], corners: Sequence[Sequence[int]], sides: Sequence[int], device: torch.device
) -> Tensor:
    """(N,2,h,w) float32: the row and column of the original that each pixel of a crop shows."""
    backward = [move.backward() for move in moves]
    # The corner is added here, in float64.
    shifts = np.stack([shift + matrix @ corner for (matrix, shift), corner in zip(backward, corners, strict=True)])
    matrices = np.stack([matrix for matrix, _ in backward])
    both = torch.from_numpy(np.concatenate([matrices, shifts[:, :, None]], axis=2).astype(np.float32)).to(device)
    rows, columns = (torch.arange(side, device=device, dtype=torch.float32) for side in sides)
    across, down = both[:, :, 0, None, None] * rows[:, None], both[:, :, 1, None, None] * columns
    return across + down + both[:, :, 2, None, None]


def _parts(sheets: Sequence[Sheet], source: Tensor) -> tuple[Tensor, Tensor]:
    """Planes (N,M,h,w) and target (N,h,w) int64 of N images of one size at source (N,2,h,w); outside the image, planes
    are mirrored or blank, and there are no labels."""
    (height, width), n_inputs = sheets[0].size, sheets[0].n_inputs
    rows, columns = torch.floor(source + 0.5).long().unbind(1)
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    flat = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    targets = _stacked([sheet.target for sheet in sheets]).flatten(1)
    labels = targets.gather(1, flat.flatten(1)).reshape(flat.shape)
    target = torch.where(inside, labels.long(), UNLABELLED_INDEX)
    planes = _stacked([sheet.planes for sheet in sheets])
    if not sheets[0].is_blank:
        return blended(planes, source), target
    which = flat.flatten(1)[:, None].expand(-1, n_inputs, -1)
    image = planes[:, :n_inputs].flatten(2).gather(2, which).reshape(len(sheets), n_inputs, *flat.shape[1:])
    return torch.cat([image * inside[:, None], blended(planes[:, n_inputs:], source)], dim=1), target


def _stacked(each: Sequence[Tensor]) -> Tensor:
    """The tensors along a new first axis; a single one is not copied."""
    return each[0][None] if len(each) == 1 else torch.stack(list(each))


def blended(planes: Tensor, source: Tensor) -> Tensor:
    """Planes (N,M,H,W) interpolated at source (N,2,h,w); outside the image, they are mirrored."""
    height, width = planes.shape[2:]
    grid = torch.stack([(2 * source[:, 1] + 1) / width - 1, (2 * source[:, 0] + 1) / height - 1], dim=-1)
    return functional.grid_sample(planes, grid, padding_mode="reflection", align_corners=False)


def _lit(planes: Tensor, drawn: Sequence[Sheet], lights: Sequence[tuple[float, float]]) -> Tensor:
    """(N,M,h,w) with altered contrast and brightness of the images; other planes stay as they are."""
    mean, spread = (torch.stack([sheet.light[which] for sheet in drawn]) for which in range(2))
    contrast, brightness = _each(lights, planes.device)
    contrast = torch.where(spread > 0, contrast, 1.0)
    return mean + (planes - mean) * contrast + spread * brightness


def _nearer(planes: Tensor, drawn: Sequence[Sheet], lights: Sequence[tuple[float, float]]) -> Tensor:
    """(N,M,h,w): depths, whose standard deviation is 1, are scaled and shifted where something was seen, as contrast
    and brightness are in other images."""
    contrast, brightness = _each(lights, planes.device)
    end = drawn[0].n_inputs - 1
    depths, seen = planes[:, :end], planes[:, end : end + 1]
    return torch.cat([(depths * contrast + brightness) * seen, planes[:, end:]], dim=1)


def _each(lights: Sequence[tuple[float, float]], device: torch.device) -> Tensor:
    """(2,N,1,1,1): the contrasts, and the brightnesses."""
    return torch.tensor(lights, dtype=torch.float32).T[:, :, None, None, None].to(device)
