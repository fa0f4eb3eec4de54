"""A step of training, plain and recorded."""

import copy

import pytest

torch = pytest.importorskip("torch")

from hedgerow.deep.crops import Batch
from hedgerow.deep.steps import UNRECORDED_STEPS, RecordedStep, plain_step
from hedgerow.deep.unet import UNet
from hedgerow.refinement.losses import batch_loss


def batch(seed, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    planes = torch.randn(2, 3, 32, 48, generator=generator)
    target = torch.randint(0, 4, (2, 32, 48), generator=generator)
    target[:, :3] = 255
    return Batch(planes.to(device), target.to(device))


def test_a_step_leaves_the_gradient_of_its_batch_alone():
    network = UNet(3, 4, 4, 2, 16)
    step = plain_step(network, 1.0)
    step(batch(0))
    loss = step(batch(1))
    gradients = [weight.grad.clone() for weight in network.parameters()]
    expected = batch_loss(network(batch(1).planes), batch(1).target, 1.0)
    assert float(loss) == pytest.approx(float(expected.detach()), abs=1e-6)
    for gradient, expected_gradient in zip(
        gradients, torch.autograd.grad(expected, list(network.parameters())), strict=True
    ):
        torch.testing.assert_close(gradient, expected_gradient)


def test_a_recorded_step_is_the_plain_one(gpu):
    if gpu != "cuda":
        pytest.skip("steps are recorded on a GPU; run the tests with --device cuda")
    network = UNet(3, 4, 8, 2, 32).cuda().to(memory_format=torch.channels_last)
    other = copy.deepcopy(network)
    recorded, plain = RecordedStep(network, 1.0), plain_step(other, 1.0)
    for seed in range(UNRECORDED_STEPS + 3):  # some as they come, one that is recorded, and replayed ones
        drawn = batch(seed, "cuda")
        assert float(recorded(drawn)) == pytest.approx(float(plain(drawn)), rel=1e-3)
        for mine, theirs in zip(network.parameters(), other.parameters(), strict=True):
            error = (mine.grad - theirs.grad).norm() / theirs.grad.norm().clamp(min=1e-6)
            assert float(error) < 0.05, "bfloat16 sums in another order"
    for mine, theirs in zip(network.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2)
