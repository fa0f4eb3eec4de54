"""Refinements for tests: a short one, stopped on purpose, and what is compared of its result."""

import torch

from hedgerow.config import RefineConfig
from hedgerow.io.model_file import save
from hedgerow.progress import silent
from hedgerow.refinement.loop import refine

SHORT = RefineConfig(n_steps=6, check_every=2, stride=2, learning_rate=0.02, relax=0.4)


def run(net, example, config=SHORT, **options):
    """The example's images refine the network, without a progress bar unless told."""
    return refine(net, example.images, example.labels, config, **{"progress": silent, **options})


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


def assert_same_weights(found, expected):
    assert found.state_dict().keys() == expected.state_dict().keys()
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def assert_same_refinement(found, expected, folder):
    """Weights, scores and history: the files of both have the same bytes."""
    assert_same_weights(found, expected)
    assert found.refinements == expected.refinements
    contents = []
    for net in (found, expected):
        save(net, folder / "compared.hedge")
        contents.append((folder / "compared.hedge").read_bytes())
    (folder / "compared.hedge").unlink()
    assert contents[0] == contents[1]


def record(net):
    """What the last refinement of a network wrote down."""
    return net.refinements[-1]


def is_finite(net):
    return all(bool(torch.isfinite(tensor).all()) for tensor in net.state_dict().values())
