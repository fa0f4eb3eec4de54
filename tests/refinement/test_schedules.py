"""How fast a refinement learns: the paper's formulas, the settings of its experiments, and what settings refuse."""

import dataclasses
import json
import math

import pytest

torch = pytest.importorskip("torch")

from hedgerow.config import UNALTERED, AugmentConfig, RefineConfig
from hedgerow.errors import ConfigError
from hedgerow.network.mapping import to_convnet
from hedgerow.refinement.schedules import CONNECTION_RATE, learning_rate, make_optimiser, momentum
from hedgerow.settings import documented_toml
from helpers.refusals import assert_one_sentence

STEPS = (0, 1, 2, 7, 55, 95, 96, 97, 400, 7999)
FIELDS = {item.name: item for item in dataclasses.fields(RefineConfig)}


@pytest.mark.parametrize(("a", "b"), [(0.01, 400.0), (0.01, 96.0), (3e-5, 96.0)])
def test_the_halving_rate_is_the_papers(a, b):
    config = RefineConfig(n_steps=8000, learning_rate=a, halving_steps=b, decay="halving")
    for i in STEPS:
        assert learning_rate(config, i) == pytest.approx(a * (1 + i / b) ** -1, rel=1e-12)
    assert learning_rate(config, 0) == a
    assert learning_rate(config, int(b)) == pytest.approx(a / 2)


@pytest.mark.parametrize("n_steps", [2, 10, 300])
def test_the_cosine_rate_falls_from_a_to_nearly_nothing(n_steps):
    config = RefineConfig(n_steps=n_steps, learning_rate=0.5, decay="cosine")
    rates = [learning_rate(config, i) for i in range(n_steps)]
    assert rates[0] == 0.5
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.25 * (1 + math.cos(math.pi * (n_steps - 1) / n_steps)))
    assert rates[n_steps // 2] == pytest.approx(0.25)
    if n_steps == 300:
        assert 0 < rates[-1] < 1e-4 * rates[0]


@pytest.mark.parametrize("highest", [0.95, 0.7, 0.99, 0.0])
def test_momentum_rises_as_in_the_paper(highest):
    config = RefineConfig(optimiser="sgd", max_momentum=highest)
    for i in STEPS:
        assert momentum(config, i) == min(highest, 1 - 3 / (i + 5))
    assert momentum(RefineConfig(optimiser="sgd"), 0) == pytest.approx(0.4)


def test_the_kinect_momentum_reaches_its_limit_at_step_55():
    config = RefineConfig.kinect()
    assert momentum(config, 54) < 0.95
    assert momentum(config, 55) == 0.95


def test_the_zebrafish_momentum_has_two_steps():
    config = RefineConfig.zebrafish()
    assert {momentum(config, i) for i in range(96)} == {0.4}
    assert {momentum(config, i) for i in (96, 97, 1000)} == {0.7}


def test_the_kinect_settings_are_the_papers():
    config = RefineConfig.kinect()
    assert config.optimiser == "sgd"
    assert (config.decay, config.learning_rate, config.halving_steps) == ("halving", 0.01, 400)
    assert (config.max_momentum, config.first_momentum) == (0.95, None)
    assert config.n_steps == 8000
    assert config.loss == "cross_entropy"
    assert config.stride**2 == 25, "25 times fewer pixels"
    assert config.trim, "cropped around the foreground"
    for ours in ("dice", "leaf_l1", "leaf_entropy", "held_out", "average", "tolerance"):
        assert getattr(config, ours) == 0, ours
    assert config.augment == UNALTERED
    assert config.relax == 1


def test_the_zebrafish_settings_are_the_papers():
    config = RefineConfig.zebrafish()
    assert config.optimiser == "sgd"
    assert (config.decay, config.learning_rate, config.halving_steps) == ("halving", 0.01, 96)
    assert (config.first_momentum, config.momentum_steps, config.max_momentum) == (0.4, 96, 0.7)
    assert config.loss == "balanced"
    assert config.stride == 9
    assert config.n_steps == 2 * 96, "two passes over 16 images and their 32 copies at each momentum"
    assert not config.trim
    assert config.augment == UNALTERED
    assert config.relax == 1
    for ours in ("dice", "leaf_l1", "leaf_entropy", "held_out", "average", "tolerance"):
        assert getattr(config, ours) == 0, ours


def test_presets_can_be_changed():
    assert RefineConfig.kinect(n_steps=3) == dataclasses.replace(RefineConfig.kinect(), n_steps=3)
    assert RefineConfig.zebrafish(seed=4).seed == 4


@pytest.mark.parametrize("name", [name for name, item in FIELDS.items() if item.metadata["low"] is not None])
def test_numbers_are_accepted_at_their_limits_and_refused_beyond(name):
    low, high = FIELDS[name].metadata["low"], FIELDS[name].metadata["high"]
    for value in (low, high):
        assert getattr(RefineConfig(**{name: value}), name) == value
    for value in (low - max(abs(low), 1), high + max(abs(high), 1), math.nan):
        with pytest.raises(ConfigError) as refusal:
            RefineConfig(**{name: value})
        assert_one_sentence(refusal, f"RefineConfig.{name}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("optimiser", "lbfgs"),
        ("decay", "linear"),
        ("decay", None),
        ("loss", "hinge"),
        ("keep", "first"),
        ("trim", 1),
        ("trim", "yes"),
        ("n_steps", 2.5),
        ("n_steps", "3"),
        ("n_steps", None),
        ("n_steps", True),
        ("learning_rate", 0),
        ("learning_rate", math.inf),
        ("stride", 0),
        ("crop", 15),
        ("patience", 0),
        ("augment", 3),
    ],
)
def test_settings_that_mean_nothing_are_refused(name, value):
    with pytest.raises(ConfigError) as refusal:
        RefineConfig(**{name: value})
    assert_one_sentence(refusal)


def test_augmentation_with_copies_is_refused():
    with pytest.raises(ConfigError) as refusal:
        RefineConfig(augment=AugmentConfig(copies=1))
    assert_one_sentence(refusal, "RefineConfig.augment", "copies")


CONFIGS = {
    "defaults": RefineConfig(),
    "kinect": RefineConfig.kinect(),
    "zebrafish": RefineConfig.zebrafish(),
    "changed": RefineConfig(
        n_steps=17, optimiser="sgd", learning_rate=1 / 3, first_momentum=0.1, stride=3, crop=32, patience=4,
        keep="best", average=0.99, trim=True, seed=2**63 - 1, augment=AugmentConfig(flip=True, shift=0.25),
    ),
}  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("name", ["a.toml", "a.json"])
def test_settings_come_back_from_a_file(tmp_path, config, name):
    config.write(tmp_path / name)
    assert RefineConfig.read(tmp_path / name) == config
    assert RefineConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_the_settings_file_explains_every_setting():
    text = documented_toml(RefineConfig())
    for name, item in FIELDS.items():
        if name != "augment":
            assert f"# {item.metadata['about']}\n" in text
    assert "[augment]" in text


def test_a_settings_file_with_an_unknown_setting_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text("n_steps = 3\nn_step = 4\n")
    with pytest.raises(ConfigError) as refusal:
        RefineConfig.read(tmp_path / "a.toml")
    assert_one_sentence(refusal, tmp_path / "a.toml", "'n_step'")


def moved(net, config, step=0):
    """How far the first step of the optimiser moves each weight (absolute), every gradient being 3 or -3."""
    optimiser = make_optimiser(net, config)
    before = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    for number, weight in enumerate(p for p in net.parameters() if p.requires_grad):
        weight.grad = torch.full_like(weight, -3.0 if number % 2 else 3.0)
    for group in optimiser.param_groups:
        group["lr"] = learning_rate(config, step) * group["factor"]
    optimiser.step()
    return {name: (weight.detach() - before[name]).abs() for name, weight in net.named_parameters()}


@pytest.mark.parametrize("connections", ["frozen", "sparse", "full"])
@pytest.mark.parametrize("rate", [0.02, 1e-4])
def test_adam_moves_weights_by_a_part_of_their_sharpness(stack, connections, rate):
    net = to_convnet(stack, "tanh", connections=connections)
    config = RefineConfig(learning_rate=rate, split_rate=0.3)
    factors = moved(net, config)
    for number in range(net.n_levels):
        level, prefix = net.level(number), f"levels.{number}."
        leaf = 0.0 if connections == "frozen" else CONNECTION_RATE * rate * level.sharpness.leaf
        expected = {
            "vote_weight": rate * level.sharpness.vote,
            "split_weight": 0.3 * rate * level.sharpness.split,
            "split_bias": 0.3 * rate * level.sharpness.split,
            "leaf_weight": leaf,
            "leaf_bias": leaf,
        }
        for name, size in expected.items():
            step = factors[prefix + name]
            rounding = 1e-6 * float(getattr(level, name).detach().abs().max())
            torch.testing.assert_close(step, torch.full_like(step, size), rtol=1e-4, atol=rounding)


def test_sgd_moves_every_weight_by_the_rate_times_its_gradient(stack):
    found = moved(to_convnet(stack), RefineConfig(optimiser="sgd", learning_rate=0.1, decay="halving"))
    for name, step in found.items():
        size = 0.0 if "leaf_" in name else 0.3
        torch.testing.assert_close(step, torch.full_like(step, size), rtol=1e-4, atol=1e-4)
