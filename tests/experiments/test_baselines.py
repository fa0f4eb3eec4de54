"""The convolutional baselines: they learn, repeat themselves, take any image, and refuse what cannot be used."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow.errors import ConfigError, InputError
from hedgerow.experiments import baselines
from hedgerow.experiments.baselines import BaselineConfig, fit_baseline
from hedgerow.experiments.data import scored
from hedgerow.experiments.networks import FCN, UNet
from hedgerow.images.labelled import LabelledImage, labelled_set
from hedgerow.progress import silent
from helpers.refusals import assert_one_sentence

STILL = hr.AugmentConfig(rotation=0.0)
SMALL = BaselineConfig(base=8, n_down=2, steps=80, check_every=20, learning_rate=0.01)
BRIEF = dataclasses.replace(SMALL, base=4, steps=3, check_every=2)


def fit(images, labels, config=BRIEF, unlabelled=255):
    return fit_baseline(labelled_set(images, labels, unlabelled=unlabelled), config, progress=silent)


def scores_of(model, images, labels):
    labelled = labelled_set(images, labels)
    return scored(labelled, [model.predict_indices(image.planes) for image in labelled])


def weights_of(model):
    return [tensor.numpy() for tensor in model.network.state_dict().values()]


def assert_same_weights(a, b):
    for one, other in zip(weights_of(a), weights_of(b), strict=True):
        np.testing.assert_array_equal(one, other)


def neighbours(n_images, seed):
    """Two alike squares, of which the left is class 1 and the right class 2: only their surroundings tell."""
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for _ in range(n_images):
        image, label = rng.normal(0, 10, (32, 32)), np.zeros((32, 32), np.uint8)
        row, column = rng.integers(0, 24), rng.integers(0, 12)
        for value, start in ((1, column), (2, column + 12)):
            image[row : row + 8, start : start + 8] += 100
            label[row : row + 8, start : start + 8] = value
        images.append(image.astype(np.float32))
        labels.append(label)
    return images, labels


@pytest.mark.parametrize("network", ["unet", "fcn"])
def test_learns_what_only_the_surroundings_tell(network):
    config = dataclasses.replace(SMALL, network=network, n_down=3, steps=100, augment=STILL, class_balanced=True)
    model = fit(*neighbours(8, seed=0), config)
    images, labels = neighbours(6, seed=1)
    found = scores_of(model, images, labels)
    # Squares told from the background but not from each other score at most 2/3 in one of the two, 0 in the other.
    assert found.dice[1:].min() > 0.75


@pytest.mark.parametrize("network", ["unet", "fcn"])
def test_same_seed_same_weights_and_the_global_generator_is_left_alone(example, network):
    config = dataclasses.replace(BRIEF, network=network, crop=16)
    before = torch.get_rng_state()
    one = fit(example.images, example.labels, config)
    np.testing.assert_array_equal(before, torch.get_rng_state())
    torch.rand(3)
    assert_same_weights(one, fit(example.images, example.labels, config))
    other = fit(example.images, example.labels, dataclasses.replace(config, seed=1))
    assert any((a != b).any() for a, b in zip(weights_of(one), weights_of(other), strict=True))


@pytest.mark.parametrize("network", [UNet, FCN])
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (16, 16), (23, 37)])
def test_networks_take_any_size(network, size):
    found = network(n_inputs=3, n_classes=4, base=2, n_down=3)(torch.zeros(1, 3, *size))
    assert found.shape == (1, 4, *size)


@pytest.mark.parametrize("network", [UNet, FCN])
@pytest.mark.parametrize("n_down", [1, 2, 5])
def test_every_weight_is_used(network, n_down):
    net = network(n_inputs=2, n_classes=3, base=4, n_down=n_down)
    net(torch.randn(1, 2, 64, 64)).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in net.parameters())


def test_it_says_the_most_likely_class(example):
    model = fit(example.images, example.labels)
    planes = example.images[0].astype(np.float32)[None]
    found = model.predict_indices(planes)
    assert model.classes == CLASSES
    assert (found.shape, found.dtype) == (example.images[0].shape, np.uint8)
    scores = model.network(model.read(planes))[0].numpy()
    np.testing.assert_array_equal(found, scores.argmax(axis=0))


@pytest.mark.parametrize("crop", [None, 16])
def test_unlabelled_pixels_are_no_class_and_teach_nothing(crop):
    """With 1 pixel in 7 labelled, everything is learned; a network taught the rest would predict little else."""
    images, labels = zip(*(draw(seed) for seed in range(4)), strict=True)
    labelled = np.random.default_rng(0).random(labels[0].shape) < 0.15
    sparse = [np.where(labelled, label, 9) for label in labels]
    model = fit(images, sparse, dataclasses.replace(SMALL, crop=crop, class_balanced=True), unlabelled=9)
    assert model.classes == CLASSES
    assert scores_of(model, images, labels).mean_dice > 0.8


def test_class_shares_count_labelled_pixels_alone():
    target = np.array([[0, 0, 0, 1], [255, 255, 255, 255]], np.uint8)
    image = LabelledImage(np.zeros((1, 2, 4), np.float32), target)
    np.testing.assert_allclose(baselines._class_share([image], 2), [3 / 4, 1 / 4])


def test_sparse_labels_that_a_copy_moves_out_of_sight():
    image, label = draw(0)
    sparse = np.full_like(label, 255)
    sparse[0, 0], sparse[0, -1] = CLASSES[:2]
    config = dataclasses.replace(BRIEF, steps=10, crop=8, augment=hr.AugmentConfig(rotation=180.0, shift=0.9))
    assert np.isfinite(fit([image], [sparse], config).checks[-1].loss)


def test_many_channels_and_sizes(example):
    images = [np.stack([image] * 4, axis=-1) for image in example.images]
    images[1] = images[1][:19, :27]
    labels = [example.labels[0], example.labels[1][:19, :27]]
    model = fit(images, labels)
    assert model.predict_indices(np.moveaxis(images[1], 2, 0).astype(np.float32)).shape == (19, 27)


def test_one_image_is_all_trained_on_to_the_last_step(example):
    model = fit(example.images[:1], example.labels[:1], dataclasses.replace(BRIEF, patience=1, steps=5))
    assert [check.step for check in model.checks] == [2, 4, 5]
    assert {check.mean_dice for check in model.checks} == {None}


def test_the_best_weights_are_kept_and_patience_ends_training():
    images, labels = zip(*(draw(seed) for seed in range(4)), strict=True)
    # So high a rate that later checks are worse than the best one.
    config = dataclasses.replace(SMALL, check_every=1, patience=3, learning_rate=0.3, validation=0.5)
    model = fit(images, labels, config)
    reached = [check.mean_dice for check in model.checks]
    best = int(np.argmax(reached))
    assert len(reached) == best + 1 + config.patience < config.steps
    rng = np.random.default_rng((config.seed, 0))
    held = rng.permutation(4)[:2]
    assert scores_of(model, [images[i] for i in held], [labels[i] for i in held]).mean_dice == reached[best]


def test_a_constant_image_and_a_constant_channel(example):
    images = [np.stack([image, np.full_like(image, 7)], axis=-1) for image in example.images]
    assert all(np.isfinite(weights).all() for weights in weights_of(fit(images, example.labels)))


def test_missing_depth_is_told_from_any_depth():
    images, labels = hr.synthetic.bodies(2, size=(24, 32))
    model = fit(images, labels, dataclasses.replace(BRIEF, images="depth"))
    planes = model.scale.apply(images[0].astype(np.float32)[None])
    missing = images[0] == 0
    assert missing.any()
    assert (planes[:, missing] == 0).all()
    assert (planes[1, ~missing] == 1).all()
    # Depths of metres, in millimetres: standardised by what was measured alone.
    assert np.abs(planes[0]).max() < 10
    assert model.predict_indices(images[0].astype(np.float32)[None]).shape == images[0].shape


def test_depth_images_have_one_channel(example):
    images = [np.stack([image] * 3, axis=-1) for image in example.images]
    with pytest.raises(InputError) as problem:
        fit(images, example.labels, dataclasses.replace(BRIEF, images="depth"))
    assert_one_sentence(problem, "one channel", "3", "images='plain'")


@pytest.mark.parametrize(
    "settings",
    [{"network": "resnet"}, {"base": 0}, {"steps": 0}, {"crop": 4}, {"augment": {"copies": 2}}, {"validation": 1.0}],
)
def test_settings_out_of_limits_are_refused(settings):
    with pytest.raises(ConfigError) as problem:
        BaselineConfig.from_dict(settings)
    assert_one_sentence(problem, next(iter(settings)))


def test_settings_survive_a_file(tmp_path):
    SMALL.write(tmp_path / "settings.toml")
    assert BaselineConfig.read(tmp_path / "settings.toml") == SMALL
