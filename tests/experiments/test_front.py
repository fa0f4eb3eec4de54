"""A convolution in front of the filter bank: gradients reach it, and it learns."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from experiments.front import FrontedNet
from hedgerow.config import UNALTERED
from hedgerow.errors import InputError, ModelError
from hedgerow.images.array_checks import to_planes
from hedgerow.network.layout import Grid
from hedgerow.progress import silent
from helpers.net_stacks import random_stack

SETTINGS = hr.StackConfig(n_levels=2, drop_levels=False, n_trees=4, max_depth=8, sigmas=(1.0, 3.0))


@pytest.fixture(scope="module")
def somites():
    images, labels = hr.synthetic.somites(n_images=2, size=(48, 48), seed=0)
    return hr.fit_stack(images, labels, SETTINGS, progress=silent), images, labels


def test_at_the_start_nothing_changes(somites):
    stack, images, _ = somites
    net = hr.to_convnet(stack)
    fronted = FrontedNet(net, seed=0)
    np.testing.assert_allclose(fronted.predict_proba(images[0]), net.predict_proba(images[0]), atol=2e-2)
    assert (fronted.predict(images[0]) == net.predict(images[0])).mean() > 0.98  # splits are sharp, filters rounded


def test_tiles_do_not_change_what_is_behind_a_front(somites):
    stack, images, _ = somites
    net = hr.to_convnet(stack)
    net.relax(0.1)
    fronted = FrontedNet(net, seed=0)
    with torch.no_grad():
        fronted.front.second.weight.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))
    whole = fronted.predict_proba(images[0], tile=1000)
    np.testing.assert_allclose(fronted.predict_proba(images[0], tile=20), whole, atol=1e-3)


def test_the_gradient_of_the_front_is_that_of_the_loss(somites):
    """Against differences of the loss, in the direction of the gradient and in another."""
    stack, images, _ = somites
    net = hr.to_convnet(stack, sharpness=hr.Sharpness(2.0, 1.0, 0.5))
    fronted, planes = FrontedNet(net, seed=0), to_planes(images[0])
    grids = fronted.grids((48, 48), Grid(3, 5, 9, 8, 4))

    def loss():
        return fronted(fronted.source(planes), grids)[-1].square().sum()

    weight = fronted.front.second.weight
    with torch.no_grad():
        weight.normal_(0, 0.05, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(loss(), weight)
    other = torch.randn(weight.shape, generator=torch.Generator().manual_seed(2))
    for direction in (gradient / gradient.norm(), other / other.norm()):
        step, result = 2e-3, []
        for sign in (1, -1):
            with torch.no_grad():
                weight += sign * step * direction
                result.append(float(loss().detach()))
                weight -= sign * step * direction
        expected = float((gradient * direction).sum())
        assert (result[0] - result[1]) / (2 * step) == pytest.approx(
            expected, rel=0.05, abs=0.01 * float(gradient.norm())
        )


@pytest.mark.slow
def test_trained_together_the_loss_falls_and_the_front_moves(somites):
    stack, images, labels = somites
    config = hr.RefineConfig(n_steps=30, check_every=10, stride=3, held_out=0.0, augment=UNALTERED, learning_rate=0.01)
    fronted = FrontedNet(hr.to_convnet(stack), seed=0)
    refined = hr.refine(fronted, images, labels, config, progress=silent)
    losses = [check.loss for check in refined.refinements[-1].checks]
    assert losses[-1] < 0.8 * losses[0], losses
    assert float(refined.front.second.weight.detach().abs().max()) > 1e-3
    assert not fronted.front.second.weight.any(), "the copy was trained"


@pytest.mark.slow
def test_the_front_learns_alone(somites):
    """With the levels held still, only gradients that go through the features can lower the loss."""
    stack, images, labels = somites
    fronted = FrontedNet(hr.to_convnet(stack, sharpness=hr.Sharpness(5.0, 1.0, 0.5)), seed=0)
    for level in range(fronted.n_levels):
        fronted.level(level).requires_grad_(False)
    optimiser = torch.optim.Adam(fronted.front.parameters(), 3e-3)
    planes, grids = to_planes(images[0]), [Grid(0, 0, 16, 16, 3)] * 2
    target = torch.from_numpy(np.searchsorted(stack.classes, labels[0][::3, ::3])).reshape(-1)
    losses = []
    for _ in range(25):
        scores = fronted(fronted.source(planes), grids)[-1].reshape(stack.n_classes, -1)
        loss = torch.nn.functional.cross_entropy(scores.T, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.02, losses


def test_what_cannot_be_is_refused(somites, tmp_path):
    with pytest.raises(InputError, match="'channels'"):
        FrontedNet(hr.to_convnet(random_stack()), seed=0)
    with pytest.raises(InputError, match="FrontedNet"):
        hr.to_forest(FrontedNet(hr.to_convnet(somites[0]), seed=0), method="weights")
    with pytest.raises(ModelError, match="FrontedNet"):
        hr.save(FrontedNet(hr.to_convnet(somites[0]), seed=0), tmp_path / "net.hedge")
    assert not list(tmp_path.iterdir())
