"""Training a convolutional network: the schedule, the best weights, and going on where it stopped."""

import copy
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.config import ConvConfig
from hedgerow.deep.crops import Batch, Sheet
from hedgerow.deep.network_training import (
    UNRECORDED_STEPS,
    RecordedStep,
    one_cycle,
    plain_step,
    start_at_shares,
    train_network,
    when_to_stop,
)
from hedgerow.deep.unet import UNet
from hedgerow.errors import ConfigError, ModelError
from hedgerow.forest.history import Check
from hedgerow.refinement.losses import batch_loss, cross_entropy, with_dice

SMALL = ConvConfig(base=2, n_down=1, n_steps=6, batch=2, crop=16, check_every=2)


def sheets(n=2):
    rng = np.random.default_rng(0)
    planes = rng.normal(size=(n, 1, 18, 22)).astype(np.float32)
    return [Sheet(torch.from_numpy(image), 1, torch.from_numpy((image[0] > 0).astype(np.uint8))) for image in planes]


def network():
    torch.manual_seed(0)
    return UNet(1, 2, 2, 1, 8)


def weights(of):
    return {name: tensor.clone() for name, tensor in of.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def test_the_rate_rises_to_its_highest_and_falls_to_almost_nothing():
    config = replace(SMALL, n_steps=300, learning_rate=0.01)
    rates, momenta = zip(*(one_cycle(config, step) for step in range(301)), strict=True)
    assert int(np.argmax(rates)) == int(np.argmin(momenta)) == 100
    assert rates[0] == pytest.approx(0.01 / 25)
    assert max(rates) == pytest.approx(0.01)
    assert rates[-1] == pytest.approx(1e-6)
    assert momenta[0] == momenta[-1] == pytest.approx(0.95)


def test_a_network_of_which_nothing_is_held_out_stops_where_others_were_clearly_better():
    def checks(*dice):
        return [Check(100 * (k + 1), 0.5, one) for k, one in enumerate(dice)]

    assert when_to_stop([checks(0.3, 0.6, 0.7)], 300) == 300
    assert when_to_stop([checks(0.3, 0.71, 0.7)], 300) == 300, "by chance"
    assert when_to_stop([checks(0.3, 0.8, 0.7), checks(0.5, 0.6, 0.6)], 300) == 200, "on average"
    assert when_to_stop([checks(0.3, 0.8, 0.7), checks(0.5, 0.6, 0.7)], 300) == 300
    assert when_to_stop([checks(0.9, 0.3, 0.7)], 300) == 300, "the rate was high then"
    assert when_to_stop([checks(0.9, 0.8, 0.7)], 300) == 200


def test_a_network_that_is_stopped_is_as_far_as_the_others_were_then():
    seen = []

    def score(of):
        seen.append(weights(of))
        return 0.0

    train_network(network(), sheets(), SMALL, score)
    stopped = network()
    checks = train_network(stopped, sheets(), SMALL, stop=4)
    assert [check.step for check in checks] == [2, 4]
    assert same(weights(stopped), seen[1])


def test_a_batch_without_labels_teaches_nothing():
    scores = torch.randn(1, 3, 4, 4, requires_grad=True)
    loss = batch_loss(scores, torch.full((1, 4, 4), 255), 1.0)
    loss.backward()
    assert loss.item() == 0
    assert not scores.grad.any()


@pytest.mark.parametrize("dice", [0.0, 1.0])
def test_the_loss_of_a_batch_is_that_of_its_pixels(dice):
    rng = np.random.default_rng(0)
    scores = torch.tensor(rng.normal(size=(2, 4, 5, 7)), requires_grad=True)
    target = torch.tensor(rng.choice([0, 1, 3, 255], size=(2, 5, 7)))
    flat = scores.movedim(1, 0).flatten(1)
    expected = with_dice(cross_entropy([], len(flat)), flat, target.reshape(-1), dice)
    loss = batch_loss(scores, target, dice)
    gradients = [torch.autograd.grad(each, scores, retain_graph=True)[0] for each in (expected, loss)]
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), abs=1e-12)
    np.testing.assert_allclose(*(each.numpy() for each in gradients), atol=1e-12)


def test_training_lowers_the_loss_and_starts_at_the_classes_shares():
    trained = network()
    start_at_shares(trained.class_bias, sheets())
    share = np.mean([float((sheet.target == 1).float().mean()) for sheet in sheets()])
    assert float(torch.softmax(trained.class_bias.detach()[:, 0, 0], 0)[1]) == pytest.approx(share, abs=1e-6)
    checks = train_network(trained, sheets(), replace(SMALL, n_steps=60, learning_rate=0.02, check_every=20))
    assert [check.step for check in checks] == [20, 40, 60]
    assert checks[-1].loss < 0.85 * checks[0].loss
    assert not trained.training
    assert not any(parameter.requires_grad for parameter in trained.parameters())


@pytest.mark.parametrize("first", [0.2, 0.95])
def test_the_weights_with_the_best_score_are_kept_once_the_rate_is_low(first):
    trained, scores, seen = network(), iter([first, 0.9, 0.4]), []

    def score(of):
        seen.append(weights(of))
        return next(scores)

    checks = train_network(trained, sheets(), SMALL, score)
    assert [check.mean_dice for check in checks] == [first, 0.9, 0.4]
    assert same(weights(trained), seen[1])
    assert not same(seen[1], seen[2])


def test_an_interrupted_run_goes_on_to_the_same_network(tmp_path):
    whole, cut = network(), network()
    train_network(whole, sheets(), SMALL, lambda of: 0.5)

    def stop(step, dice):
        if step == 5:
            raise KeyboardInterrupt

    options = {"checkpoint": tmp_path / "state", "mark": "one"}
    with pytest.raises(KeyboardInterrupt):
        train_network(cut, sheets(), SMALL, lambda of: 0.5, **options, advance=stop)
    resumed, steps = network(), []
    train_network(resumed, sheets(), SMALL, lambda of: 0.5, **options, advance=lambda step, dice: steps.append(step))
    assert steps == [5, 6]
    assert same(weights(whole), weights(resumed))
    with pytest.raises(ModelError, match="another"):
        train_network(network(), sheets(), SMALL, None, checkpoint=tmp_path / "state", mark="two")


def test_a_loss_that_is_no_number_ends_the_run():
    bad = replace(sheets()[0], planes=torch.full((1, 18, 22), torch.nan))
    with pytest.raises(ConfigError, match="learning_rate"):
        train_network(network(), [bad], SMALL)


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
