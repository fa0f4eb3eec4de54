"""The convolutional baselines: they learn, repeat themselves, take any image, and refuse what cannot be used."""

import dataclasses
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow.errors import ConfigError, InputError
from hedgerow.experiments import baselines
from hedgerow.experiments.baselines import BaselineConfig, fit_baseline
from hedgerow.experiments.data import halved, load_set
from hedgerow.experiments.networks import FCN, UNet
from hedgerow.images.labelled import TrainingImage
from hedgerow.images.metrics import scores
from hedgerow.progress import silent
from helpers.refusals import assert_one_sentence, assert_refused

STILL = hr.AugmentConfig(rotation=0.0)
SMALL = BaselineConfig(base=8, depth=2, steps=80, check_every=20, learning_rate=0.01)
BRIEF = dataclasses.replace(SMALL, base=4, steps=3, check_every=2)


def fit(images, labels, config=BRIEF, **options):
    return fit_baseline(images, labels, config, progress=silent, **options)


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
    config = dataclasses.replace(SMALL, network=network, depth=3, steps=100, augment=STILL, class_balanced=True)
    model = fit(*neighbours(8, seed=0), config)
    images, labels = neighbours(6, seed=1)
    found = scores(labels, [model.predict(image) for image in images], model.classes)
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
    found = network(n_inputs=3, n_classes=4, base=2, depth=3)(torch.zeros(1, 3, *size))
    assert found.shape == (1, 4, *size)


@pytest.mark.parametrize("network", [UNet, FCN])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_every_weight_is_used(network, depth):
    net = network(n_inputs=2, n_classes=3, base=4, depth=depth)
    net(torch.randn(1, 2, 64, 64)).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in net.parameters())


def test_answers_like_a_stack(example):
    model = fit(example.images, example.labels)
    proba = model.predict_proba(example.images[0])
    assert model.classes == CLASSES
    assert proba.shape == (3, *example.images[0].shape)
    assert proba.dtype == np.float32
    np.testing.assert_allclose(proba.sum(axis=0), 1, atol=1e-5)
    label = model.predict(example.images[0])
    assert label.dtype == np.uint8
    np.testing.assert_array_equal(label, np.array(CLASSES)[proba.argmax(axis=0)])


def test_negative_class_values_are_given_back(example):
    labels = [np.where(label == CLASSES[0], -4, label) for label in example.labels]
    model = fit(example.images, labels)
    assert model.classes == (-4, *CLASSES[1:])
    assert set(np.unique(model.predict(example.images[0]))) <= set(model.classes)


@pytest.mark.parametrize("crop", [None, 16])
def test_unlabelled_pixels_are_no_class_and_teach_nothing(crop):
    """With 1 pixel in 7 labelled, everything is learned; a network taught the rest would predict little else."""
    images, labels = zip(*(draw(seed) for seed in range(4)), strict=True)
    labelled = np.random.default_rng(0).random(labels[0].shape) < 0.15
    sparse = [np.where(labelled, label, 9) for label in labels]
    model = fit(images, sparse, dataclasses.replace(SMALL, crop=crop, class_balanced=True), unlabelled=9)
    assert (model.classes, model.unlabelled) == (CLASSES, 9)
    assert scores(labels, [model.predict(image) for image in images], CLASSES).mean_dice > 0.8


def test_class_shares_count_labelled_pixels_alone():
    target = np.array([[0, 0, 0, 1], [255, 255, 255, 255]], np.uint8)
    image = TrainingImage(np.zeros((1, 2, 4), np.float32), target, np.zeros((2, 4), np.int32))
    np.testing.assert_allclose(baselines._class_share([image], 2), [3 / 4, 1 / 4])


def test_sparse_labels_that_a_copy_moves_out_of_sight():
    image, label = draw(0)
    sparse = np.full_like(label, 255)
    sparse[0, 0], sparse[0, -1] = CLASSES[:2]
    config = dataclasses.replace(BRIEF, steps=10, crop=8, augment=hr.AugmentConfig(rotation=180.0, shift=0.9))
    assert np.isfinite(fit([image], [sparse], config).history[-1]["loss"])


def test_many_channels_and_sizes(example):
    images = [np.stack([image] * 4, axis=-1) for image in example.images]
    images[1] = images[1][:19, :27]
    labels = [example.labels[0], example.labels[1][:19, :27]]
    model = fit(images, labels)
    assert model.predict(images[1]).shape == (19, 27)
    with pytest.raises(InputError) as problem:
        model.predict(example.images[0])
    assert_one_sentence(problem, "1 channel", "4")


def test_one_image_is_all_trained_on_to_the_last_step(example):
    model = fit(example.images[:1], example.labels[:1], dataclasses.replace(BRIEF, patience=1, steps=5))
    assert [check["step"] for check in model.history] == [2, 4, 5]
    assert {check["mean_dice"] for check in model.history} == {None}
    assert model.held_out_dice is None


def test_the_best_weights_are_kept_and_patience_ends_training():
    images, labels = zip(*(draw(seed) for seed in range(4)), strict=True)
    # So high a rate that later checks are worse than the best one.
    config = dataclasses.replace(SMALL, check_every=1, patience=3, learning_rate=0.3, validation=0.5)
    model = fit(images, labels, config)
    reached = [check["mean_dice"] for check in model.history]
    best = int(np.argmax(reached))
    assert len(reached) == best + 1 + config.patience < config.steps
    rng = np.random.default_rng((config.seed, 0))
    held = rng.permutation(4)[:2]
    again = scores([labels[i] for i in held], [model.predict(images[i]) for i in held], model.classes)
    assert again.mean_dice == reached[best] == model.held_out_dice


def test_a_constant_image_and_a_constant_channel(example):
    images = [np.stack([image, np.full_like(image, 7)], axis=-1) for image in example.images]
    assert np.isfinite(fit(images, example.labels).predict_proba(images[0])).all()


def test_missing_depth_is_told_from_any_depth():
    images, labels = hr.synthetic.bodies(2, size=(24, 32))
    model = fit(images, labels, dataclasses.replace(BRIEF, images="depth"))
    planes = model.scale.apply(images[0].astype(np.float32)[None])[0].numpy()
    missing = images[0] == 0
    assert missing.any()
    assert (planes[:, missing] == 0).all()
    assert (planes[1, ~missing] == 1).all()
    # Depths of metres, in millimetres: standardised by what was measured alone.
    assert np.abs(planes[0]).max() < 10
    assert model.predict(images[0]).shape == images[0].shape


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": lambda e: e.labels[:1]}, ("2 image(s)", "1 label map")),
        ({"labels": lambda e: [label[:5] for label in e.labels]}, ("image 0", "24 rows", "5 rows")),
        ({"labels": lambda e: [np.full((24, 32), 255)] * 2}, ("image 0", "no labelled pixel")),
        ({"images": lambda e: [e.images[0], np.stack([e.images[1]] * 2, axis=-1)]}, ("image 1", "2 channel")),
        ({"images": lambda e: [e.images[0].astype(float) * np.nan, e.images[1]]}, ("image 0", "NaN")),
    ],
)
def test_bad_input_gets_one_clear_sentence(example, change, words):
    given = {"images": example.images, "labels": example.labels}
    given |= {name: make(example) for name, make in change.items()}
    with pytest.raises(InputError) as problem:
        fit(**given)
    assert_one_sentence(problem, *words)


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


def test_settings_of_another_kind_are_refused(example):
    with pytest.raises(ConfigError) as problem:
        fit(example.images, example.labels, hr.StackConfig())
    assert_one_sentence(problem, "StackConfig", "BaselineConfig")


def test_settings_survive_a_file(tmp_path):
    SMALL.write(tmp_path / "settings.toml")
    assert BaselineConfig.read(tmp_path / "settings.toml") == SMALL


@pytest.fixture
def folder(listed_place):
    """A folder for experiments, with brief settings."""
    BRIEF.write(listed_place / "brief.toml")
    return listed_place


def test_runs_from_the_command_line(folder, experiment):
    options = ("--half", "--config", folder / "brief.toml", "--steps", 4)
    finished = experiment(baselines.main, "fcn", "--data", folder, *options)
    assert finished.code == 0, finished.err
    result = json.loads(finished.out)
    assert result["network"] == "fcn"
    assert result["steps"] == 4
    assert result["held_out"] is None
    assert 0 <= result["test"] <= 1


def test_command_line_refuses_in_one_sentence(folder, experiment):
    (folder / "test.txt").write_text("a1\nabsent\n")
    assert_refused(experiment(baselines.main, "unet", "--data", folder), "absent")


def test_a_folder_without_its_list_is_refused(place):
    with pytest.raises(InputError) as problem:
        load_set(str(place), "train")
    assert_one_sentence(problem, "train.txt")


@pytest.mark.parametrize("shape", [(4, 6), (5, 7), (5, 7, 3)])
def test_halved_images_fit_halved_labels(shape):
    image = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    half = halved(image)
    assert half.shape[:2] == image[::2, ::2].shape[:2]
    np.testing.assert_allclose(half[0, 1], image[:2, 2:4].mean(axis=(0, 1)))
    np.testing.assert_array_equal(halved(image, depth=True), image[::2, ::2])
