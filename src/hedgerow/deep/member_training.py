"""Training the networks of a convolutional level on their inputs, with their folds held out."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import numpy as np
import torch

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.deadline import Deadline
from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.crops import Sheet, fit_scale, sheet_of
from hedgerow.deep.deepstack import proba_by_tile
from hedgerow.deep.member_kinds import MEMBER_KINDS
from hedgerow.deep.network_training import UNRECORDED_STEPS, Advance, start_at_shares, when_to_stop
from hedgerow.deep.pretrained import PRETRAINED_PREFIX
from hedgerow.deep.recipe import Recipe, Task
from hedgerow.deep.unet import UNet
from hedgerow.encoders.catalogue import find
from hedgerow.encoders.protocol import TorchEncoder
from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.joined import Joined
from hedgerow.files import fingerprint
from hedgerow.forest.history import Check
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.metrics import Scores, confusion
from hedgerow.network.stacknet import StackNet
from hedgerow.progress import Report
from hedgerow.threads import get_threads, map_threads
from hedgerow.work_folder import WorkFolder

MAX_JUDGED_PIXELS = 2**18  # held-out pixels of all images that decide the weights of members
TIMED_STEPS = 3
UNTIMED_STEPS = {"cpu": 1, "cuda": UNRECORDED_STEPS + 1}  # before the timed steps; on a GPU, the last is recorded
_SEEDING = threading.Lock()  # PyTorch has one generator for all threads
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class TrainedNetwork:
    """A network, and the checks of its training.

    held_out: (C,S) its class probabilities of the pixels in its fold; None: it holds out no fold
    """

    net: ConvNet
    held_out: np.ndarray | None
    checks: Sequence[Check]


class MemberTraining:
    """Trains the networks of a convolutional level; stores the inputs that they share."""

    def __init__(
        self, net: StackNet, recipe: Recipe, stack_proba: Sequence[np.ndarray], work: WorkFolder, device: str
    ) -> None:
        """stack_proba: for each image (C,H,W) held-out class probabilities of the stack"""
        self.base, self.recipe, self.stack_proba, self.work = net, recipe, stack_proba, work
        self.config, self.folds = recipe.config, recipe.network_folds
        self.device, self.labelled = torch.device(device), recipe.labelled
        self.scale = fit_scale(self.labelled.images, net.features.blank)
        first, end = self.read_features = features_read(net, self.config)
        # Half precision, as of the stack's probabilities, is enough for networks, and all images are in memory at once.
        self.features = [
            net.features.compute(image.planes)[first:end].astype(np.float16) if first < end else None
            for image in self.labelled
        ]
        self.step = max(1, round(np.sqrt(sum(image.target.size for image in self.labelled) / MAX_JUDGED_PIXELS)))

    def train(self, tasks: Sequence[Task], report: Report) -> list[TrainedNetwork]:
        """The networks of all tasks; on a CPU, each thread trains one at a time.

        Networks that hold out a fold come first, because their scores decide when the others of their member stop.
        """
        n_steps = self.config.conv.n_steps
        done, lock, stopped = [0] * len(tasks), threading.Lock(), threading.Event()
        stops: dict[str, int] = {}
        problems: list[BaseException] = []
        held_out = [k for k, task in enumerate(tasks) if task.fold is not None]
        whole = [k for k, task in enumerate(tasks) if task.fold is None]
        deadlines = self._deadlines([held_out, whole])

        def run(number: int) -> TrainedNetwork:
            def advance(step: int, dice: float | None) -> None:
                if stopped.is_set():
                    raise InterruptedError
                with lock:
                    done[number] = step
                    score = "" if dice is None else f": held-out Dice {dice:.3f}"
                    report(f"convolutional networks{score}", sum(done), len(tasks) * n_steps)

            try:
                stop = stops.get(tasks[number].member, n_steps)
                return self._train_network(tasks[number], stop, deadlines(number), advance)
            except BaseException as problem:
                problems.append(problem)
                stopped.set()  # otherwise the other threads would train to the end
                raise

        def run_all(numbers: list[int]) -> dict[int, TrainedNetwork]:
            try:
                return dict(zip(numbers, self._map(run, numbers, stopped.set), strict=True))
            except InterruptedError:
                raise problems[0] from None  # the cause, not that other networks were stopped

        results = run_all(held_out)
        for member in {task.member for task in tasks}:
            checks = [result.checks for k, result in results.items() if tasks[k].member == member]
            stops[member] = when_to_stop(checks, n_steps) if checks else n_steps
        results |= run_all(whole)
        return [results[k] for k in range(len(tasks))]

    def _deadlines(self, batches: Sequence[Sequence[int]]) -> Callable[[int], Deadline | None]:
        """For each network, when it begins: its share of the time left, if as many train at once as there are threads,
        one batch of them after the other."""
        at_once, until = self.n_at_once, self.recipe.until
        n_rounds = [-(-len(batch) // at_once) for batch in batches]
        left = {  # rounds that are left when a network begins, its own included
            number: sum(n_rounds[k:]) - position // at_once
            for k, batch in enumerate(batches)
            for position, number in enumerate(batch)
        }

        def deadline(number: int) -> Deadline | None:
            if until is None:
                return None
            now = self.recipe.clock()
            return Deadline(now + (until - now) / left[number], self.recipe.clock)

        return deadline

    @property
    def n_at_once(self) -> int:
        """How many networks train at once."""
        return get_threads() if self.device.type == "cpu" else 1

    def _map(
        self, function: Callable[[Item], Result], items: Iterable[Item], stop: Callable[[], None] | None = None
    ) -> list[Result]:
        return list(map_threads(function, items, stop) if self.device.type == "cpu" else map(function, items))

    def seconds_of_a_step(self, tasks: Sequence[Task]) -> float:
        """Seconds per step of the slowest member, measured while as many networks train as later."""
        first = list({task.member: task for task in tasks}.values())
        at_once = [*first, *tasks[: max(min(self.n_at_once, len(tasks)) - len(first), 0)]]
        n_steps = UNTIMED_STEPS[self.device.type] + TIMED_STEPS

        def seconds(task: Task) -> float:
            times: list[float] = []

            def advance(step: int, dice: float | None) -> None:
                if self.device.type == "cuda":
                    torch.cuda.synchronize(self.device)  # otherwise the time to start the step would be measured
                times.append(self.recipe.clock())

            net, sheets, conv = self._untrained(task)
            few = replace(conv, n_steps=n_steps, check_every=n_steps)
            self.recipe.train_network(net.network, sheets, few, advance=advance)
            return (times[-1] - times[-1 - TIMED_STEPS]) / TIMED_STEPS

        return max(self._map(seconds, at_once))

    def _train_network(self, task: Task, stop: int, deadline: Deadline | None, advance: Advance) -> TrainedNetwork:
        net, sheets, conv = self._untrained(task)
        mark = "" if self.work.folder is None else self._mark(task, conv)
        checkpoint = self.work.state(f"{task.member}-{task.number}", mark)
        score = None if task.fold is None else self._scorer(net, task.fold)
        checks = self.recipe.train_network(
            net.network, sheets, conv, score, stop=stop, deadline=deadline, checkpoint=checkpoint, mark=mark,
            advance=advance,
        )  # fmt: skip
        round_to_half(net.network)
        if task.fold is None:
            return TrainedNetwork(net, None, checks)
        held = self.folds.held(task.fold)
        proba = [self.sampled(i, task.fold, self._proba(net, i)) for i in held]
        return TrainedNetwork(net, np.concatenate(proba, axis=1), checks)

    def _scorer(self, net: ConvNet, fold: int) -> Callable[[torch.nn.Module], float]:
        """A function that scores the network on a fold, in one orientation to save time."""
        held = [(i, self.folds.target(i, fold)) for i in self.folds.held(fold)]
        quick, n_classes = replace(net, orientations=1), self.labelled.n_classes

        def score(network: torch.nn.Module) -> float:
            table = np.zeros((n_classes, n_classes), np.int64)
            for i, target in held:
                table += confusion(target, self._proba(quick, i).argmax(0).astype(np.uint8), n_classes)
            return float(Scores(self.labelled.classes, table).mean_dice)

        return score

    def _proba(self, net: ConvNet, i: int) -> np.ndarray:
        """(C,H,W) class probabilities of an image."""
        return proba_by_tile(
            net, self.labelled.images[i].planes, self.features[i], self.stack_proba[i], self.recipe.tile
        )

    def _untrained(self, task: Task) -> tuple[ConvNet, list[Sheet], ConvConfig]:
        """A network before training, the images to train it on, and its settings."""
        conv, reads = self.recipe.conv_for(task), self.recipe.reads_stack(task.member)
        net = ConvNet(self._network(task, conv, reads), self.scale, self.read_features, reads, conv.orientations)
        sheets = [
            sheet_of(net, replace(image, target=target), self.features[i], self.stack_proba[i])
            for i, image in enumerate(self.labelled)
            if (target := self.folds.training_target(i, task.fold)) is not None
        ]
        start_at_shares(net.network.class_bias, sheets)
        return net, sheets, conv

    def _network(self, task: Task, conv: ConvConfig, reads: bool) -> UNet:
        kind, n_classes = MEMBER_KINDS[task.member], self.labelled.n_classes
        first, end = self.read_features
        n_inputs = self.scale.n_outputs + end - first + (n_classes if reads else 0)
        with _SEEDING, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(conv.seed)
            network = kind.network(n_inputs, n_classes, conv.base, conv.n_down, conv.widest, conv.norm)
        if kind.encoder:
            network.start_from(cast(TorchEncoder, find(kind.encoder)).weights, self.scale.n_outputs)
            for name, weight in network.named_parameters():
                weight.requires_grad_(self.recipe.is_alternate(task) or not name.startswith(PRETRAINED_PREFIX))
        return network.to(self.device)

    def _mark(self, task: Task, conv: ConvConfig) -> str:
        """A fingerprint of everything that determines the network."""
        pairs = zip(self.labelled, self.stack_proba, strict=True)
        arrays = [array for image, proba in pairs for array in (image.planes, image.target, proba)]
        reads = self.recipe.reads_stack(task.member)
        decides = (task.member, reads, task.fold, conv.to_dict(), self.config.to_dict(), str(self.device))
        return fingerprint(*decides, *self.folds.parts, *arrays)

    def truth(self, pixels: Sequence[tuple[int, int]]) -> np.ndarray:
        """(S,) class indices of the sampled pixels of images and folds."""
        truth = [self.sampled(i, fold, self.labelled.images[i].target[None])[0] for i, fold in pixels]
        return np.concatenate(truth).astype(np.uint8)

    def sampled(self, i: int, fold: int, planes: np.ndarray) -> np.ndarray:
        """(C,S): planes (C,H,W) at the labelled pixels of a fold, on every `step`-th row and column."""
        target = self.folds.target(i, fold)[:: self.step, :: self.step]
        return np.asarray(planes[:, :: self.step, :: self.step][:, target != UNLABELLED_INDEX], np.float32)


def no_probabilities(net: StackNet, labelled: LabelledSet) -> list[np.ndarray]:
    """(C,H,W) float16 zeros for each image, for networks that do not read the stack's probabilities."""
    return [np.zeros((net.n_classes, *image.size), np.float16) for image in labelled]


def round_to_half(network: torch.nn.Module) -> None:
    """Round all weights to half precision in place, which halves the model file. The probabilities of two networks of
    somites changed by at most 0.003, on average by 0.000003."""
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(weight.half() + 0.0)  # removes -0, which files cannot store as a whole number


def features_read(net: StackNet, config: DeepConfig) -> tuple[int, int]:
    """Start and end of the stack's features that the networks read."""
    features = net.features
    if config.features == "all":
        return 0, features.n_features
    if config.features == "encoder":
        start = 0
        for member in features.members if isinstance(features, Joined) else (features,):
            if isinstance(member, EncoderFeatures):
                return start, start + member.n_features
            start += member.n_features
    return 0, 0
