"""Training one convolutional network: batches, a one-cycle schedule, and a loss of cross-entropy and Dice.

Every step derives its random choices from the seed and its own number, so a resumed run equals an uninterrupted one.
"""

import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hedgerow.config import ConvConfig
from hedgerow.deadline import Deadline, is_passed
from hedgerow.deep.crops import Batch, Sheet, draw_batch
from hedgerow.deep.pretrained import PRETRAINED_PREFIX
from hedgerow.errors import ConfigError
from hedgerow.forest.history import Check
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.refinement import checkpoints
from hedgerow.refinement.checkpoints import State, weights_of
from hedgerow.refinement.losses import batch_loss

log = logging.getLogger("hedgerow")
RISING_PART = 1 / 3  # fraction of the steps during which the learning rate rises
FIRST_RATE, LAST_RATE = 1 / 25, 1e-4  # learning rates of the first and the last step, relative to the highest
SLOW_MOMENTUM, FAST_MOMENTUM = 0.95, 0.85  # momentum at the lowest and the highest rate
PRETRAINED_RATE = 0.1  # learning rate of pretrained weights, relative to the others
SETTLED_PART = 2 / 3  # fraction of the steps after which the rate is low enough for a network to be usable
MIN_DICE_FALL = 0.02  # mean Dice; near the end, scores hardly change, so such a fall is not due to chance
UNRECORDED_STEPS = 3  # steps before one is recorded, in which libraries choose their kernels
Advance = Callable[[int, float | None], None]
"""Receives the number of steps done and the latest held-out score."""
TrainNetwork = Callable[..., list[Check]]
"""`train_network`, or a function with the same arguments."""


def one_cycle(config: ConvConfig, step: int) -> tuple[float, float]:
    """Learning rate and momentum of a step: the rate rises to its highest and falls again, each along a half cosine."""
    peak = max(RISING_PART * config.n_steps, 1.0)
    if step < peak:
        part = 0.5 * (1 - math.cos(math.pi * step / peak))
        low = FIRST_RATE
    else:
        part = 0.5 * (1 + math.cos(math.pi * (step - peak) / max(config.n_steps - peak, 1.0)))
        low = LAST_RATE
    rate = config.learning_rate * (low + (1 - low) * part)
    return rate, SLOW_MOMENTUM + (FAST_MOMENTUM - SLOW_MOMENTUM) * part


def start_at_shares(class_bias: nn.Parameter, sheets: Sequence[Sheet]) -> None:
    """Start the scores at the class frequencies, which would otherwise take hundreds of steps to learn."""
    counts = sum(torch.bincount(sheet.target.reshape(-1).cpu(), minlength=UNLABELLED_INDEX + 1) for sheet in sheets)
    assert isinstance(counts, Tensor)
    share = counts[: len(class_bias)].clamp(min=1).float()
    class_bias.data[:, 0, 0] = (share / share.sum()).log().to(class_bias.device)


def train_network(
    network: nn.Module,
    sheets: Sequence[Sheet],
    config: ConvConfig,
    score: Callable[[nn.Module], float] | None = None,
    *,
    stop: int | None = None,
    deadline: Deadline | None = None,
    checkpoint: Path | None = None,
    mark: str = "",
    advance: Advance = lambda step, dice: None,
) -> list[Check]:
    """Train a network in place; returns its checks. With `score`, it ends with the best weights of the last third.

    score:      scores the network on held-out images; None: there are none
    stop:       number of steps after which to stop; rates are those of a run of all steps; None: after all steps
    deadline:   steps are left out where training would not end in time; None: there is none
    checkpoint: file for the state, from which an interrupted run resumes; the caller removes it
    mark:       fingerprint of everything that determines the result; a state with another one is refused
    """
    device = next(network.parameters()).device
    is_gpu = device.type == "cuda"
    # On a CPU, this order makes the backward pass a quarter faster, but prediction slower.
    order = torch.channels_last if is_gpu else torch.contiguous_format
    network.to(memory_format=order)  # type: ignore[call-overload]
    decay = config.weight_decay
    optimiser = torch.optim.AdamW(_groups(network), config.learning_rate, weight_decay=decay, fused=is_gpu)
    step_on = step_of(network, config.dice)
    state = State(0, weights_of(network), good=weights_of(network))
    if checkpoint is not None and checkpoint.exists():
        state = checkpoints.load(checkpoint, mark, state.weights, optimiser, config.n_steps)
        network.load_state_dict(state.weights)
        log.warning("resuming from step %d of %s", state.step, checkpoint)
    losses: list[Tensor] = []
    stop = config.n_steps if stop is None else stop
    while state.step < stop:
        network.train()
        batch = draw_batch(sheets, config, state.step)
        rate, momentum = one_cycle(config, state.step)
        for group in optimiser.param_groups:
            group["lr"], group["betas"] = rate * group["part"], (momentum, 0.999)
        losses.append(step_on(batch))
        optimiser.step()
        before = state.step
        state.step = before + 1 if deadline is None else deadline.after(before, stop)
        is_check = is_passed(state.step, before, config.check_every) or state.step == stop
        if is_check:
            _check(network, state, float(torch.stack(losses).mean()), score, config.n_steps)
            losses.clear()
            if checkpoint is not None:
                state.weights, state.moments = weights_of(network), checkpoints.moments_of(optimiser)
                state.good, state.good_step = state.weights, state.step
                checkpoints.save(checkpoint, state, mark)
        advance(state.step, state.checks[-1].mean_dice if state.checks else None)
    if state.best:
        network.load_state_dict(state.best)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    network.eval().requires_grad_(False)
    return state.checks


def _groups(network: nn.Module) -> list[dict[str, Any]]:
    """The trainable weights, with their part of the learning rate: a small one for pretrained weights."""
    known: list[Tensor] = []
    own: list[Tensor] = []
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            (known if name.startswith(PRETRAINED_PREFIX) else own).append(weight)
    return [{"params": own, "part": 1.0}, *([{"params": known, "part": PRETRAINED_RATE}] if known else [])]


def when_to_stop(checks: Sequence[Sequence[Check]], n_steps: int) -> int:
    """The number of steps for a network without held-out images, from the checks of similar networks: all steps, unless
    these networks were clearly better at an earlier check that `is_settled`."""
    settled = [[check for check in each if is_settled(check.step, n_steps)] for each in checks]
    n_checks = min(map(len, settled))  # a late network may have left out a check
    dice = np.mean([[check.mean_dice or 0.0 for check in each[-n_checks:]] for each in settled], axis=0)
    best = int(np.argmax(dice))
    return settled[0][-n_checks:][best].step if dice[best] > dice[-1] + MIN_DICE_FALL else n_steps


def is_settled(step: int, n_steps: int) -> bool:
    """Whether the learning rate after this step is low enough for its score to count. Earlier scores fluctuate by
    chance, so that the best of many scores on a few images means little."""
    return step >= SETTLED_PART * n_steps


def _check(
    network: nn.Module, state: State, loss: float, score: Callable[[nn.Module], float] | None, n_steps: int
) -> None:
    """Record the loss and the score; keep the weights if they are the best settled ones."""
    if not math.isfinite(loss):
        raise ConfigError(f"the loss is not a number after {state.step} step(s); choose a lower learning_rate.")
    dice = None if score is None else score(network.eval())
    known = [check.mean_dice or 0.0 for check in state.checks if is_settled(check.step, n_steps)]
    if dice is not None and is_settled(state.step, n_steps) and dice >= max(known, default=0.0):
        state.best = weights_of(network)
    state.checks.append(Check(state.step, loss, dice))
    log.info("step %d: loss %.4f, held-out mean Dice %s", state.step, loss, dice)


Step = Callable[[Batch], Tensor]
"""Stores the gradient of a batch in the weights and returns its loss. On a GPU, a step is recorded once and replayed,
because a network of this size has hundreds of small kernels, which take longer to start one by one than to run."""


def plain_step(network: nn.Module, dice: float) -> Step:
    """A step without recording. On a GPU, the network computes in bfloat16."""
    is_gpu = next(network.parameters()).device.type == "cuda"
    order = torch.channels_last if is_gpu else torch.contiguous_format

    def step(batch: Batch) -> Tensor:
        for weight in network.parameters():
            weight.grad = None
        # A recorded step must not keep weights that were rounded before it.
        with torch.autocast("cuda", torch.bfloat16, enabled=is_gpu, cache_enabled=False):
            scores = network(batch.planes.contiguous(memory_format=order))
        loss = batch_loss(scores.float(), batch.target, dice)
        torch.autograd.backward(loss)
        return loss.detach()

    return step


class RecordedStep:
    """A step on a GPU that is recorded once and replayed, for batches of one shape."""

    def __init__(self, network: nn.Module, dice: float) -> None:
        self._step, self._n_done = plain_step(network, dice), 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._device = next(network.parameters()).device
        stream: Any = torch.cuda.Stream  # has no type annotations
        self._side = stream(self._device)  # recording must not begin on the default stream

    def __call__(self, batch: Batch) -> Tensor:
        with torch.cuda.device(self._device):  # kernels on another GPU than the current one are not recorded
            if self._n_done < UNRECORDED_STEPS:
                self._n_done += 1
                return self._aside(batch)
            if self._graph is None:
                self._record(batch)
            assert self._graph is not None
            self._batch.planes.copy_(batch.planes)
            self._batch.target.copy_(batch.target)
            self._graph.replay()
            return self._loss.clone()

    def _aside(self, batch: Batch) -> Tensor:
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            loss = self._step(batch)
        torch.cuda.current_stream().wait_stream(self._side)
        return loss

    def _record(self, batch: Batch) -> None:
        self._batch = Batch(batch.planes.clone(memory_format=torch.channels_last), batch.target.clone())
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = self._step(self._batch)


def step_of(network: nn.Module, dice: float) -> Step:
    """The fastest kind of step for the network's device."""
    is_gpu = next(network.parameters()).device.type == "cuda"
    return RecordedStep(network, dice) if is_gpu else plain_step(network, dice)
