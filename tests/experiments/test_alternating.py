"""Votes and splits trained in turn: every update of the votes raises the likelihood, and both learn."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from experiments.alternating import LEAST, MixtureNet, alternated
from hedgerow.config import UNALTERED
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.kernels.definition import level as definition
from hedgerow.network.layout import lattice
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent

SETTINGS = hr.StackConfig(n_levels=2, drop_levels=False, n_trees=3, max_depth=6, sigmas=(1.0, 3.0))


@pytest.fixture(scope="module")
def somites():
    images, labels = hr.synthetic.somites(n_images=3, size=(40, 44), seed=0)
    return hr.fit_stack(images, labels, SETTINGS, progress=silent), images, labels


def likelihood(net, labelled):
    """The mean log-probability of the true class at every labelled pixel, from predictions."""
    logs = []
    for image in labelled:
        known = image.target != UNLABELLED_INDEX
        proba = net.predict_proba(np.moveaxis(image.planes, 0, 2))
        logs.append(np.log(np.maximum(np.take_along_axis(proba, image.target[None] * known, 0)[0], LEAST))[known])
    return float(np.concatenate(logs).mean())


def test_at_the_start_the_mixture_is_the_forests(somites):
    stack, images, _ = somites
    mixture = MixtureNet(hr.to_convnet(stack, sharpness=hr.Sharpness(1e5, 1.0, 0.5)))
    # A value equal to its threshold goes both ways in a fuzzy tree.
    assert (mixture.predict(images[0]) == stack.predict(images[0])).mean() > 0.95


def test_its_scores_are_log_probabilities(somites):
    stack, images, labels = somites
    net = hr.to_convnet(stack)
    net.relax(0.1)
    mixture, labelled = MixtureNet(net), labelled_for(net, images, labels)
    source = mixture.source(labelled.images[0].planes)
    last = mixture(source, mixture.grids((1, 40, 44), lattice(40, 44, 1)))[-1]
    proba = definition.softmax(last)[:, 0].detach().numpy()
    np.testing.assert_allclose(proba, mixture.predict_proba(images[0]), atol=1e-4)


def test_an_update_of_the_votes_raises_the_likelihood_and_leaves_probabilities(somites):
    stack, images, labels = somites
    single = replace(stack, levels=stack.levels[:1])
    net = hr.to_convnet(single)
    net.relax(0.02)
    mixture, labelled = MixtureNet(net), labelled_for(net, images, labels)
    before = likelihood(mixture, labelled)
    reported = [mixture.update_votes(labelled, 1) for _ in range(4)]
    assert reported[0] == pytest.approx(before, abs=1e-3)
    assert reported == sorted(set(reported))
    assert likelihood(mixture, labelled) > reported[-1]
    votes = mixture.level(0).vote_weight.detach()
    np.testing.assert_allclose(votes.sum(dim=1), 1, atol=1e-5)
    assert (votes >= 0).all()


def test_both_learn_and_the_network_given_stays_as_it_was(somites):
    stack, images, labels = somites
    net = hr.to_convnet(stack)
    before = {name: weight.clone() for name, weight in net.state_dict().items()}
    labelled = labelled_for(net, images, labels)
    config = hr.RefineConfig(n_steps=20, augment=UNALTERED, held_out=0.0, check_every=100, pixels=2000)
    trained = alternated(net, labelled, config, silent)
    relaxed = MixtureNet(hr.to_convnet(stack))
    relaxed.relax(config.relax)
    assert type(trained) is StackNet
    assert likelihood(trained, labelled) > likelihood(relaxed, labelled) + 0.05
    assert not torch.equal(trained.level(0).split_weight, before["levels.0.split_weight"] * config.relax)
    assert all(torch.equal(weight, before[name]) for name, weight in net.state_dict().items())
