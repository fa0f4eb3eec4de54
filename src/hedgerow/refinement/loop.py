"""Refinement: the network is trained end to end, on one image at a time, with its trees frozen.

Each step derives its random choices from the seed and its own number, so a resumed run equals an uninterrupted one.
"""

import copy
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from hedgerow.choices import LOSSES
from hedgerow.config import GPU_STEP_PIXELS, STEP_PIXELS, RefineConfig
from hedgerow.deadline import Deadline, is_passed
from hedgerow.encoders.torch_devices import OneThread
from hedgerow.errors import ConfigError, DivergenceError, InputError
from hedgerow.features.encoder import changed_of
from hedgerow.files import fingerprint
from hedgerow.forest.history import Check, Refinement
from hedgerow.images.altering import trimmed
from hedgerow.images.labelled import Images, LabelledSet
from hedgerow.images.subjects import Groups, grouped
from hedgerow.kernels import buffers
from hedgerow.locking import locked
from hedgerow.network.stacknet import StackNet
from hedgerow.overwrite_guard import remove_state
from hedgerow.predict.evaluate import labelled_for, score
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report, quiet, reporting, silent
from hedgerow.refinement import checkpoints, distributed
from hedgerow.refinement.checkpoints import State, weights_of
from hedgerow.refinement.losses import with_dice
from hedgerow.refinement.sampler import Sampler, Scorer, ValidationSplit, how_many_ahead, lattice_dice, scoring_images
from hedgerow.refinement.schedules import learning_rate, make_optimiser, momentum
from hedgerow.refinement.tuning import TunedNet, check_tunable, plain

log = logging.getLogger("hedgerow")
DIVERGED_FACTOR = 3.0  # a mean loss above this factor times the first loss, plus one, will not recover


def refine(
    net: StackNet,
    images: Images,
    labels: Images,
    config: RefineConfig | None = None,
    *,
    validation: tuple[Images, Images] | None = None,
    unlabelled: int | None = None,
    groups: Groups = None,
    names: Sequence[str] | None = None,
    validation_names: Sequence[str] | None = None,
    axes: str | None = None,
    checkpoint: str | Path | None = None,
    keep_checkpoint: bool = False,
    progress: Report | None = None,
) -> StackNet:
    """A refined copy of the network; images (H,W[,C]) of any size and labels (H,W), volumes and labels (Z,Y,X), one of
    each, or files of both.

    validation: images and labels that score the network; None: the ones that training reserved, or else some of these
                images that the forests have not seen
    groups:     which images are held out together, as of `fit`
    names, validation_names: names of the images in messages
    axes:       of the arrays, as of `fit`
    checkpoint: file for the state; an interrupted run resumes from it, and a finished one removes it. A second run
                with the same file at the same time is refused
    keep_checkpoint: do not remove it; the caller removes it once the network is saved
    The last of the copy's `StackNet.refinements` records this one: scores of the stack, and of the network before and
    after.

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> net = hr.refine(hr.to_convnet(stack), images, labels, hr.RefineConfig(n_steps=2))
    >>> net.refinements[-1].checks[-1].step
    2
    """
    _checked_config(net, config)
    labelled = grouped(labelled_for(net, images, labels, unlabelled, names, axes=axes), groups, quiet)
    held = None
    if validation is not None:
        held = labelled_for(net, *validation, unlabelled, validation_names, what="validation image", axes=axes)
    with locked(Path(checkpoint)) if checkpoint is not None and distributed.is_first() else nullcontext():
        return refine_labelled(
            net, labelled, config, validation=held, checkpoint=checkpoint, keep_checkpoint=keep_checkpoint,
            progress=progress,
        )  # fmt: skip


def refine_labelled(
    net: StackNet,
    labelled: LabelledSet,
    config: RefineConfig | None = None,
    *,
    validation: LabelledSet | None = None,
    checkpoint: str | Path | None = None,
    keep_checkpoint: bool = False,
    scorer: Scorer = lattice_dice,
    deadline: Deadline | None = None,
    progress: Report | None = None,
) -> StackNet:
    """`refine` on labelled images.

    scorer:   scores the network at each check
    deadline: steps are left out where the refinement would not end in time; None: there is none
    """
    config = _checked_config(net, config)
    if config.stride is None and config.pixels is None:
        config = replace(config, pixels=default_pixels(net))
    split = scoring_images(net.known, labelled, validation, config)
    copied = copy.deepcopy(net)
    run = _Refinement(TunedNet(copied) if config.train_encoder else copied, split, config, scorer, deadline)
    mark = fingerprint(
        settings_of(config), *_kind(net), *(tensor.detach().cpu().numpy() for tensor in net.state_dict().values()),
        *(array for image in (*split.train, *split.held) for array in (image.planes, image.target)),
        *([distributed.n_processes()] if distributed.n_processes() > 1 else []),
    )  # fmt: skip
    path = None if checkpoint is None else Path(checkpoint)
    with (
        reporting(progress) as report,
        steady_sums(net, config.train_encoder),
        distributed.joined(net.device),
        run.sampler,
    ):
        run.start(path, mark, report)
        distributed.wait()
        run.go_on(path, mark, report)
        refined = run.finish()
    buffers.release()
    if path is not None and not keep_checkpoint and distributed.is_first():
        remove_state(path)
    return refined


def _checked_config(net: StackNet, config: RefineConfig | None) -> RefineConfig:
    """The settings to use; raises an error if they do not fit this network."""
    if not isinstance(net, StackNet):
        raise InputError(f"a {type(net).__name__} was given to refine; give a network, e.g. from to_convnet(stack).")
    config = RefineConfig() if config is None else config
    if not isinstance(config, RefineConfig):
        raise ConfigError(f"config is a {type(config).__name__}; give a RefineConfig, e.g. RefineConfig(n_steps=300).")
    check_settings(config, net.split, is_depth=net.features.blank is not None)
    if config.train_encoder:
        check_tunable(net.features)
    return config


def default_pixels(net: StackNet) -> int:
    """About how many pixels of an image each step uses: more on a GPU that has kernels for the network."""
    levels = [net.level(number) for number in range(net.n_levels)]
    is_quick = net.device.type != "cpu" and all(level.is_fused(level.vote_weight) for level in levels)
    return GPU_STEP_PIXELS if is_quick else STEP_PIXELS


class _Refinement:
    """A refinement in progress."""

    def __init__(
        self, net: StackNet, split: ValidationSplit, config: RefineConfig, scorer: Scorer, deadline: Deadline | None
    ) -> None:
        self.deadline = deadline
        self.net, self.held, self.config, self.is_honest, self.scorer = net, split.held, config, split.is_honest, scorer
        self.train, blank = split.train, net.features.blank
        if config.trim and blank is not None:
            self.train = [trimmed(image, blank) for image in self.train]
        net.set_tolerance(config.tolerance)
        targets = [image.target for image in self.train]
        self.loss = LOSSES[config.loss].load()(targets, net.n_classes)
        self.state = State(0, {})
        self.losses: list[float] = []
        end = config.n_steps * distributed.n_processes()
        self.sampler = Sampler(net, self.train, config, end, how_many_ahead(net, self.train))

    def start(self, path: Path | None, mark: str, report: Report) -> None:
        """Score the stack and the mapped network and soften its splits, or resume from the checkpoint."""
        is_resumed = path is not None and path.exists()
        before = (None, None) if is_resumed else (self._score(self.net.stack), self._score(self.net))
        self.marks = [image.mark for image in self.train]
        if not self.net.relaxed:
            self.net.relax(self.config.relax)
        self.optimiser = make_optimiser(self.net, self.config)
        begun = weights_of(self.net)
        if path is not None and is_resumed:
            self.state = checkpoints.load(path, mark, begun, self.optimiser, self.config.n_steps)
            self.net.load_state_dict(self.state.weights)
            log.warning("resuming from step %d of %s", self.state.step, path)
        else:
            dice = self._check()
            best = {} if dice is None else begun
            self.state = State(0, begun, best=best, good=begun, scores=before, checks=[Check(0, mean_dice=dice)])
        report("refining", self.state.step, self.config.n_steps)

    def go_on(self, path: Path | None, mark: str, report: Report) -> None:
        """Train until the last step, or until the patience is exhausted; the state is saved after every check."""
        config, state = self.config, self.state
        unproven = (state.average or state.weights, state.step)
        while state.step < config.n_steps and not self._is_stale():
            loss, before = self._step(state.step), state.step
            state.step = before + 1 if self.deadline is None else self.deadline.after(before, config.n_steps)
            if not (math.isfinite(loss) and all(bool(p.isfinite().all()) for p in self.net.parameters())):
                self._give_up(f"the loss or a weight became infinite or NaN at step {state.step}")
            self.losses.append(loss)
            first = state.checks[0].loss
            if first is None:
                first = loss  # the loss of a step is that of the network before it
                state.checks[0] = replace(state.checks[0], loss=loss)
            mean = float(np.mean(self.losses))
            self._follow_average()
            latest = state.checks[-1].mean_dice
            known = f", held-out Dice {latest:.3f}" if latest is not None and self.is_honest else ""
            report(f"refining: loss {mean:.3f}{known}", state.step, config.n_steps)
            if not is_passed(state.step, before, config.check_every) and state.step < config.n_steps:
                continue
            if mean > DIVERGED_FACTOR * first + 1:
                self._give_up(f"the loss grew from {first:.3f} to {mean:.3f} by step {state.step}")
            # The losses since the last check show that the network of that check was good; this one is not yet proven.
            state.good, state.good_step = unproven
            self._note(mean)
            state.weights, state.moments = weights_of(self.net), checkpoints.moments_of(self.optimiser)
            unproven = (state.average or state.weights, state.step)
            if path is not None and distributed.is_first():
                checkpoints.save(path, state, mark)
            self.losses = []

    def finish(self) -> StackNet:
        """The network to return, with its record."""
        state = self.state
        if self.config.keep == "best" and state.best:
            self.net.load_state_dict(state.best)
        elif state.average:
            self.net.load_state_dict(state.average)
        self._record(self._score(self.net), state.step)
        return plain(self.net)

    def _record(self, refined: float | None, step: int) -> None:
        """Append the record of this refinement, up to this step, to the network's `refinements`."""
        checks = tuple(check for check in self.state.checks if check.step <= step)
        if not self.is_honest:
            checks = tuple(replace(check, mean_dice=None) for check in checks)
        n_scored = len(self.held) if self.is_honest else 0
        record = Refinement(settings_of(self.config), checks, *self.state.scores, refined, n_scored)
        self.net.refinements = (*self.net.refinements, record)
        self.net.stack = replace(self.net.stack, known=self.net.known.with_seen(self.marks))

    def _step(self, step: int) -> float:
        """Train on one image, or on one per process; returns the loss."""
        config, net = self.config, self.net
        shown = self.sampler.at(distributed.own(step), distributed.n_processes())
        penalty = config.leaf_l1 + config.leaf_entropy  # one of them is 0, see `check_settings`
        leaf_spread: list[Tensor] | None = [] if penalty else None
        outputs = net(shown.source, net.grids(shown.source.extent, shown.grid), leaf_spread)
        target = torch.from_numpy(shown.target.astype(np.int64)).to(net.device)
        loss = with_dice(self.loss, outputs[-1].reshape(net.n_classes, -1), target.reshape(-1), config.dice)
        if leaf_spread:
            loss = loss + penalty * torch.stack([level.mean() for level in leaf_spread]).sum()
        rate = learning_rate(config, step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["factor"]
            if config.optimiser == "sgd":
                group["momentum"] = momentum(config, step)
        return distributed.stepped(self.optimiser, loss)

    def _score(self, model: Model) -> float | None:
        """Mean Dice on all pixels of the held-out images; None if there are none, or the forests know them."""
        return float(score(model, self.held, silent).mean_dice) if len(self.held) and self.is_honest else None

    def _check(self) -> float | None:
        """The score of the network as `finish` would return it; None without held-out images."""
        if not len(self.held):
            return None
        current = weights_of(self.net)
        if self.state.average:
            self.net.load_state_dict(self.state.average)
        dice = self.scorer(self.net, self.held, self.config)
        self.net.load_state_dict(current)
        return dice

    def _note(self, loss: float) -> None:
        """Score the network and remember it if it is the best so far."""
        state, dice = self.state, self._check()
        earlier = [check.mean_dice for check in state.checks if check.mean_dice is not None]
        state.checks.append(Check(state.step, loss, dice))
        if dice is not None and dice > max(earlier):
            state.best = dict(state.average) if state.average else weights_of(self.net)

    def _is_stale(self) -> bool:
        """Whether the score has not improved for as many checks as the patience allows."""
        scores = [check.mean_dice for check in self.state.checks if check.mean_dice is not None]
        patience = self.config.patience
        if patience is None or not scores:
            return False
        return len(scores) - 1 - int(np.argmax(scores)) >= patience

    def _follow_average(self) -> None:
        decay = self.config.average
        if decay:
            now = weights_of(self.net)
            before = self.state.average or now
            # In this form, the average of a weight that does not train equals it to the last bit.
            self.state.average = {name: before[name] + (1 - decay) * (now[name] - before[name]) for name in now}

    def _give_up(self, reason: str) -> NoReturn:
        state = self.state
        self.net.load_state_dict(state.good)
        self._record(None, state.good_step)
        raise DivergenceError(
            f"{reason}, so refinement stopped and kept the network of step {state.good_step}; lower the learning rate "
            f"({self.config.learning_rate:g}) or the sharpness.",
            plain(self.net),
        )


def check_settings(config: RefineConfig, split: str, is_depth: bool) -> None:
    """Raise ConfigError for settings that do not fit a network; it need not exist yet.

    split:    kind of splits of the network
    is_depth: whether its features are those of depth images
    """
    if split == "hard":
        raise ConfigError("hard splits have no gradient; map the stack with split='soft', 'tanh' or 'crelu'.")
    if config.leaf_l1 and split != "tanh":
        raise ConfigError(
            f"the leaf activations of {split!r} splits sum to one, so their L1 norm cannot shrink; set leaf_l1 to 0, "
            "or map with split='tanh'."
        )
    if config.leaf_entropy and split != "soft":
        raise ConfigError(
            f"only soft splits have an entropy of leaf membership, and these are {split!r}; set leaf_entropy to 0, or "
            "map with split='soft'."
        )
    if config.trim and not is_depth:
        raise ConfigError("trim is for depth images, whose background is 0; set trim to false.")


def _kind(net: StackNet) -> Iterator[Any]:
    """What defines a network apart from its weights: settings and forest of each level, and changed features."""
    for number in range(net.n_levels):
        level = net.level(number)
        yield [level.split, level.activation, level.connections, level.sharpness.to_dict()]
        forest = level.forest
        yield from (forest.root, forest.left_child, forest.channel, forest.offset, forest.radius)
    changed = changed_of(net.features)
    yield from (changed[name] for name in sorted(changed))


def settings_of(config: RefineConfig) -> dict[str, Any]:
    """The settings to record, without those of the encoder if it does not train, as in earlier versions."""
    of_encoder = ("train_encoder", "encoder_rate")
    return {name: value for name, value in config.to_dict().items() if config.train_encoder or name not in of_encoder}


def steady_sums(net: StackNet, train_encoder: bool = False) -> AbstractContextManager[None]:
    """One PyTorch thread on the CPU, since sums would depend on their number; the kernels have threads of their own."""
    is_steady = train_encoder or (net.device.type == "cpu" and net.level(0).connections == "frozen")
    return OneThread() if is_steady else nullcontext()
