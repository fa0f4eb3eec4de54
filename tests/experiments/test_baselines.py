"""The convolutional baselines: they learn, repeat themselves, take any image, and refuse what cannot be used."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES, draw
from experiments import baselines
from experiments.baselines import BaselineConfig, fit_baseline
from experiments.networks import FCN
from hedgerow.config import ConvConfig
from hedgerow.deep.folds import search_folds
from hedgerow.deep.unet import ImageNorm, UNet
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.given import labelled_set
from hedgerow.progress import silent
from helpers.refusals import assert_one_sentence

STILL = hr.AugmentConfig(rotation=0.0)
SMALL = BaselineConfig(sizes=(8,), conv=ConvConfig(n_down=3, n_steps=40, batch=4, check_every=20, learning_rate=0.01))
BRIEF = dataclasses.replace(SMALL, sizes=(4,), conv=ConvConfig(n_down=2, n_steps=3, batch=2, check_every=2))


def changed(config, **conv):
    return dataclasses.replace(config, conv=dataclasses.replace(config.conv, **conv))


def fit(images, labels, config=BRIEF, unlabelled=255):
    return fit_baseline(labelled_set(images, labels, unlabelled=unlabelled), config, progress=silent)


def scores_of(model, images, labels):
    labelled = labelled_set(images, labels)
    return labelled.score([model.predict_indices(image.planes) for image in labelled])


def weights_of(model):
    return [tensor.numpy() for tensor in model.net.network.state_dict().values()]


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
    config = dataclasses.replace(changed(SMALL, augment=STILL), network=network)
    model = fit(*neighbours(8, seed=0), config)
    images, labels = neighbours(6, seed=1)
    found = scores_of(model, images, labels)
    # Squares told from the background but not from each other score at most 2/3 in one of the two, 0 in the other.
    assert found.dice[1:].min() > 0.75


@pytest.mark.parametrize("network", ["unet", "fcn"])
def test_same_seed_same_weights_and_the_global_generator_is_left_alone(example, network):
    config = dataclasses.replace(changed(BRIEF, crop=16), network=network)
    before = torch.get_rng_state()
    item = fit(example.images, example.labels, config)
    np.testing.assert_array_equal(before, torch.get_rng_state())
    torch.rand(3)
    assert_same_weights(item, fit(example.images, example.labels, config))
    other = fit(example.images, example.labels, changed(config, seed=1))
    assert any((a != b).any() for a, b in zip(weights_of(item), weights_of(other), strict=True))


@pytest.mark.parametrize("network", [UNet, FCN])
@pytest.mark.parametrize("norm", ["batch", "image"])
@pytest.mark.parametrize("size", [(1, 1), (5, 3), (16, 16), (23, 37)])
def test_networks_take_any_size(network, norm, size):
    found = network(n_inputs=3, n_classes=4, base=2, n_down=3, widest=8, norm=norm).eval()(torch.zeros(1, 3, *size))
    assert found.shape == (1, 4, *size)


@pytest.mark.parametrize("network", [UNet, FCN])
@pytest.mark.parametrize("n_down", [1, 2, 5])
def test_every_weight_is_used(network, n_down):
    net = network(n_inputs=2, n_classes=3, base=4, n_down=n_down, widest=16, norm="batch")
    net(torch.randn(1, 2, 64, 64)).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in net.parameters())


def test_it_says_the_most_likely_class(example):
    model = fit(example.images, example.labels)
    planes = example.images[0].astype(np.float32)[None]
    result = model.predict_indices(planes)
    assert model.classes == CLASSES
    assert (result.shape, result.dtype) == (example.images[0].shape, np.uint8)
    np.testing.assert_array_equal(result, model.net.proba(planes, None, None).argmax(axis=0))


def test_the_best_size_and_normalisation_on_held_out_images_are_taken(monkeypatch, example):
    crop = BRIEF.conv.crop
    worth = {(2, "batch", crop): 0.3, (2, "image", crop): 0.5, (4, "image", crop): 0.6, (3, "image", crop): 0.4}
    tried = []

    def dice(folds, config, conv, device, report):
        assert 0 < len(folds.training(0)) <= len(folds.labelled)
        tried.append((conv.base, conv.norm, conv.crop))
        return worth[tried[-1]]

    monkeypatch.setattr(baselines, "_held_out_dice", dice)
    config = dataclasses.replace(BRIEF, sizes=(2, 4, 3), norms=("batch", "image"))
    model = fit(example.images, example.labels, config)
    assert tried == list(worth)
    assert (model.conv.base, model.conv.norm, model.tried) == (4, "image", worth)
    norms = [part for part in model.net.network.modules() if isinstance(part, ImageNorm)]
    assert norms
    assert not [part for part in model.net.network.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert_same_weights(model, fit(example.images, example.labels, dataclasses.replace(BRIEF, norms=("image",))))


def test_the_best_crops_on_held_out_images_are_taken(monkeypatch, example):
    monkeypatch.setattr(baselines, "_held_out_dice", lambda folds, config, conv, *rest: conv.crop / 100)
    config = changed(BRIEF, crop=16)
    assert fit(example.images, example.labels, config).conv.crop == 16
    model = fit(example.images, example.labels, dataclasses.replace(config, crops=(32,)))
    assert (model.conv.crop, list(model.tried.values())) == (32, [0.16, 0.32])


def test_candidates_are_scored_on_images_that_they_did_not_see(monkeypatch):
    images, labels = neighbours(8, seed=0)
    seen = []
    real = baselines._trained

    def trained(labelled, *rest):
        seen.append([image.name for image in labelled])
        return real(labelled, *rest)

    monkeypatch.setattr(baselines, "_trained", trained)
    labelled = labelled_set(images, labels)
    folds = search_folds(labelled, 0)
    model = fit(images, labels, dataclasses.replace(BRIEF, sizes=(2, 4)))
    without = [labelled.images[i].name for i in range(8) if i not in folds.held(0)]
    assert seen == [without, without, [image.name for image in labelled]]
    held = folds.held(0)
    other = real(folds.training(0), BRIEF, dataclasses.replace(BRIEF.conv, base=4), "cpu", silent)
    found = scores_of(other, [images[i] for i in held], [labels[i] for i in held])
    assert model.tried[4, "batch", BRIEF.conv.crop] == pytest.approx(found.mean_dice, abs=1e-9)


def test_turned_images_vote_together(example):
    config = changed(BRIEF, orientations=8)
    model, plain = fit(example.images, example.labels, config), fit(example.images, example.labels)
    assert_same_weights(model, plain)
    planes = example.images[0].astype(np.float32)[None]
    assert (model.net.proba(planes, None, None) != plain.net.proba(planes, None, None)).any()


@pytest.mark.parametrize("crop", [256, 16])
def test_unlabelled_pixels_are_no_class_and_teach_nothing(crop):
    """With 1 pixel in 7 labelled, everything is learned; a network taught the rest would predict little else."""
    images, labels = zip(*(draw(seed) for seed in range(4)), strict=True)
    labelled = np.random.default_rng(0).random(labels[0].shape) < 0.15
    sparse = [np.where(labelled, label, 9) for label in labels]
    model = fit(images, sparse, changed(SMALL, crop=crop), unlabelled=9)
    assert model.classes == CLASSES
    assert scores_of(model, images, labels).mean_dice > 0.8


def test_sparse_labels_that_a_copy_moves_out_of_sight():
    image, label = draw(0)
    sparse = np.full_like(label, 255)
    sparse[0, 0], sparse[0, -1] = CLASSES[:2]
    config = changed(BRIEF, n_steps=10, crop=16, augment=hr.AugmentConfig(rotation=180.0, shift=0.9))
    assert np.isfinite(fit([image], [sparse], config).checks[-1].loss)


def test_many_channels_and_sizes(example):
    images = [np.stack([image] * 4, axis=-1) for image in example.images]
    images[1] = images[1][:19, :27]
    labels = [example.labels[0], example.labels[1][:19, :27]]
    model = fit(images, labels)
    assert model.predict_indices(np.moveaxis(images[1], 2, 0).astype(np.float32)).shape == (19, 27)


def test_a_constant_image_and_a_constant_channel(example):
    images = [np.stack([image, np.full_like(image, 7)], axis=-1) for image in example.images]
    assert all(np.isfinite(weights).all() for weights in weights_of(fit(images, example.labels)))


def test_missing_depth_is_told_from_any_depth():
    images, labels = hr.synthetic.bodies(2, size=(24, 32))
    model = fit(images, labels, dataclasses.replace(BRIEF, images="depth"))
    planes = model.net.scale.apply(images[0].astype(np.float32)[None])
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


@pytest.mark.parametrize("settings", [{"network": "resnet"}, {"norms": ["none"]}, {"images": "film"}], ids=str)
def test_settings_out_of_limits_are_refused(settings):
    with pytest.raises(ConfigError) as problem:
        BaselineConfig.from_dict(settings)
    assert_one_sentence(problem, next(iter(settings)))


def test_settings_survive_a_file(tmp_path):
    SMALL.write(tmp_path / "settings.toml")
    assert BaselineConfig.read(tmp_path / "settings.toml") == SMALL
