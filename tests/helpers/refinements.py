"""Refinements for tests: a short one, stopped on purpose, and what is compared of its result."""

import sys
from types import ModuleType

import torch

from hedgerow.choices import LOSSES, Choice
from hedgerow.config import RefineConfig
from hedgerow.io.model_file import save
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine, refine_labelled
from hedgerow.refinement.losses import cross_entropy

SHORT = RefineConfig(n_steps=6, check_every=2, stride=2, learning_rate=0.02, relax=0.4)


def run(net, example, config=SHORT, **options):
    """The example's images refine the network, without a progress bar unless given."""
    return refine(net, example.images, example.labels, config, **{"progress": silent, **options})


def run_scored(scores, net, example, config=SHORT, validation=None):
    """`run` whose checks find these scores, one after the other."""
    labelled = labelled_for(net, example.images, example.labels)
    held = None if validation is None else labelled_for(net, *validation)
    following = iter(scores)
    return refine_labelled(net, labelled, config, validation=held, scorer=lambda *_: next(following), progress=silent)


def register_loss(monkeypatch, name, change):
    """Offer a loss: `change` of the number of the step, from 1, and the cross-entropy. Returns the list of the steps so
    far, which a test may shorten."""
    steps = []

    def loss_of(targets, n_classes):
        inner = cross_entropy(targets, n_classes)

        def loss(scores, target):
            steps.append(len(steps) + 1)
            return change(steps[-1], inner(scores, target))

        return loss

    module = ModuleType("hedgerow.loss_of_a_test")
    module.loss_of = loss_of
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(LOSSES, name, Choice("for a test", "loss_of_a_test:loss_of"))
    return steps


class Stopped(Exception):
    """Raised in a progress report, as a user or a failing machine stops a run."""


def stop_at(step):
    """A progress report that stops the run after so many steps."""

    def report(what, done, total):
        if done == step:
            raise Stopped

    return report


def weights(net):
    return {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}


def assert_same_weights(result, expected):
    assert result.state_dict().keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.equal(result.state_dict()[name], tensor), name


def assert_same_refinement(result, expected, folder):
    """Weights, scores and history: the files of both have the same bytes."""
    assert_same_weights(result, expected)
    assert result.refinements == expected.refinements
    contents = []
    for net in (result, expected):
        save(net, folder / "compared.hedge")
        contents.append((folder / "compared.hedge").read_bytes())
    (folder / "compared.hedge").unlink()
    assert contents[0] == contents[1]


def record(net):
    """What the last refinement of a network wrote down."""
    return net.refinements[-1]


def is_finite(net):
    return all(bool(torch.isfinite(tensor).all()) for tensor in net.state_dict().values())
