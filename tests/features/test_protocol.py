"""One way in for features: a kind from outside the package does all that the built-in ones do."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.choices import known_features
from hedgerow.errors import ConfigError, InputError
from hedgerow.features import registry
from hedgerow.features.bank import Proportions
from hedgerow.features.protocol import FeatureSet, unfitted
from hedgerow.features.registry import FeatureStore, fit_features
from hedgerow.images.array_checks import to_planes
from hedgerow.images.regions import Region
from hedgerow.progress import silent
from helpers.forests import GROWN, SMALL, grown_stack


@dataclass(frozen=True)
class Differences(FeatureSet):
    """A toy: each pixel, and how much it differs from the one `far` columns to its left."""

    kind: ClassVar[str] = "differences"

    n_inputs: int
    far: int
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def from_images(cls, images, config):
        return cls(len(images[0]), 3, **unfitted(2 * len(images[0])))

    @property
    def names(self):
        return tuple(f"{what} {c}" for what in ("pixel", "difference") for c in range(self.n_inputs))

    @property
    def halo(self):
        return self.far

    def raw(self, image):
        left = np.pad(image, ((0, 0), (0, 0), (self.far, 0)), mode="edge")[:, :, : image.shape[2]]
        return np.concatenate([image, image - left]).astype(np.float32)

    def settings(self):
        return {**super().settings(), "far": self.far}


@pytest.fixture
def toy(monkeypatch):
    """The kind is known while a test runs."""
    monkeypatch.setattr(registry, "FEATURE_KINDS", dict(registry.FEATURE_KINDS))
    return registry.register(Differences)


def striped(n_images=3, size=(22, 26), seed=0):
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for _ in range(n_images):
        label = (np.arange(size[1]) // 5 % 2 * np.ones((size[0], 1))).astype(np.uint8)
        images.append((label * 60 + rng.integers(0, 40, size)).astype(np.uint8))
        labels.append(label)
    return images, labels


@pytest.fixture
def toy_stack(toy):
    return hr.fit_stack(*striped(), replace(SMALL, features="differences"), progress=silent)


def test_a_kind_from_outside_trains_and_predicts_in_tiles(toy_stack):
    image = striped(1, (31, 37), seed=5)[0][0]
    whole = toy_stack.predict_proba(image, tile=1000)
    assert toy_stack.features.names == ("pixel 0", "difference 0")
    for tile in (5, 16):
        np.testing.assert_array_equal(toy_stack.predict_proba(image, tile=tile), whole)


def test_a_kind_from_outside_is_saved_and_known_again(toy_stack, tmp_path, monkeypatch):
    hr.save(toy_stack, tmp_path / "toy.hedge")
    loaded = hr.load(tmp_path / "toy.hedge")
    image = striped(1, seed=6)[0][0]
    assert loaded.features.settings() == {"kind": "differences", "n_inputs": 1, "far": 3}
    np.testing.assert_array_equal(loaded.predict_proba(image), toy_stack.predict_proba(image))
    monkeypatch.delitem(registry.FEATURE_KINDS, "differences")
    with pytest.raises(hr.ModelError, match=r"differences.*import the package that defines it"):
        hr.load(tmp_path / "toy.hedge")


def test_a_kind_from_outside_is_refined_and_mapped_back(toy_stack):
    pytest.importorskip("torch")
    images, labels = striped()
    config = hr.RefineConfig(n_steps=3, check_every=3, stride=2)
    net = hr.refine(hr.to_convnet(toy_stack), images, labels, config, progress=silent)
    back = hr.to_forest(net, images, progress=silent)
    assert net.predict(images[0]).shape == back.predict(images[0]).shape == images[0].shape


def test_a_kind_from_outside_is_exported_without_its_filters_or_refused(toy_stack, tmp_path):
    from hedgerow.export.c import export_c

    with pytest.raises(InputError, match="differences"):
        export_c(toy_stack, tmp_path / "toy.c")
    assert not list(tmp_path.iterdir())
    export_c(toy_stack, tmp_path / "toy.c", filters=False)
    assert (tmp_path / "toy.c").exists()


class Views(Differences):
    """What it returns is a view of a larger array, and of the image itself."""

    kind: ClassVar[str] = "views"

    def raw(self, image):
        return np.concatenate([image, image])[:, :, ::-1] if self.far == 3 else image


@pytest.mark.parametrize("memory", [0, 2**28])
def test_what_a_kind_returns_is_its_own_affair(monkeypatch, memory):
    """Views are standardised as arrays are, wherever they are kept, and no image is written to."""
    monkeypatch.setitem(registry.FEATURE_KINDS, "views", Views)
    monkeypatch.setitem(known_features, "views", None)
    monkeypatch.setattr(registry, "FeatureStore", lambda: FeatureStore(memory))
    images = [image[None].astype(np.float32) for image in striped()[0]]
    before = [image.copy() for image in images]
    features, computed = registry.fit_features(images, replace(SMALL, features="views"))
    for i, image in enumerate(images):
        np.testing.assert_array_equal(image, before[i])
        np.testing.assert_array_equal(computed[i], features.compute(image))
    np.testing.assert_allclose(np.concatenate(list(computed), axis=1).mean(axis=(1, 2)), 0, atol=1e-5)
    one = replace(features, far=0, mean=features.mean[:1], std=features.std[:1])
    assert abs(one.compute(images[0]).mean()) < 0.5
    np.testing.assert_array_equal(images[0], before[0])


def test_a_name_is_given_once(toy):
    for kind in (Differences, type("Other", (Differences,), {"kind": "bank"})):
        with pytest.raises(ConfigError, match="another name"):
            registry.register(kind)


def test_unknown_kinds_are_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"wavelets.*bank, channels, depth"):
        hr.fit_stack(*striped(), hr.StackConfig(features="wavelets"))


@pytest.mark.parametrize("kind", [*GROWN, "joined"])
def test_a_region_equals_the_whole(kind):
    stack, image = grown_stack(kind)
    features = stack.features
    planes = to_planes(image, layout=features.layout)
    whole = features.compute(planes)
    height, width = planes.shape[1:]
    for region in (Region(0, 1, 0, 1), Region(3, 9, 5, width), Region(height - 1, height, 2, 3)):
        np.testing.assert_array_equal(features.compute(planes, region), region.of(whole))


def test_several_kinds_stand_side_by_side():
    images, labels = striped()
    planes = [np.stack([image, image[::-1]]) for image in images]
    stack = hr.fit_stack(planes, labels, replace(SMALL, features="bank+channels"), progress=silent)
    channels = hr.fit_stack(planes, labels, replace(SMALL, features="channels"), progress=silent)
    features = stack.features
    assert features.n_features == 2 * (1 + 2 * 8) + 2
    assert features.names[-2:] == ("channel 0", "channel 1")
    assert features.halo == features.members[0].halo > 0
    computed = features.compute(planes[0].astype(np.float32))
    np.testing.assert_array_equal(computed[-2:], channels.features.compute(planes[0].astype(np.float32)))
    assert np.isfinite(computed).all()


def test_depth_stands_alone():
    images, labels = striped()
    with pytest.raises(ConfigError, match=r"'depth' features.*alone"):
        hr.fit_stack(images, labels, hr.StackConfig(features=("bank", "depth")))


def test_features_are_computed_once_per_training_image(monkeypatch, toy):
    calls = []
    true_raw = Differences.raw
    monkeypatch.setattr(Differences, "raw", lambda self, image: calls.append(1) or true_raw(self, image))
    config = replace(SMALL, features="differences", augment=hr.AugmentConfig(copies=1))
    hr.fit_stack(*striped(3), config, progress=silent)
    assert len(calls) == 6, "three images and a copy of each"


@pytest.mark.parametrize("memory", [0, 5000, 2**28])
def test_where_features_are_kept_does_not_matter(monkeypatch, memory):
    images, labels = striped()
    expected = hr.fit_stack(images, labels, SMALL, progress=silent)
    monkeypatch.setattr(registry, "FeatureStore", lambda: FeatureStore(memory))
    found = hr.fit_stack(images, labels, SMALL, progress=silent)
    for mine, theirs in zip(found.levels, expected.levels, strict=True):
        np.testing.assert_array_equal(mine.threshold, theirs.threshold)
        np.testing.assert_array_equal(mine.votes, theirs.votes)


def test_a_full_disk_is_told_with_the_remedy(monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(registry.tempfile, "TemporaryFile", full)
    monkeypatch.setattr(registry, "FeatureStore", lambda: FeatureStore(0))
    with pytest.raises(InputError, match=r"No space left.*TMPDIR"):
        hr.fit_stack(*striped(), SMALL, progress=silent)


def test_the_constants_of_the_bank_travel_with_the_model(monkeypatch, tmp_path):
    """A later change of a default must not alter a model that exists."""
    images, labels = striped()
    stack = hr.fit_stack(images, labels, SMALL, progress=silent)
    assert vars(stack.features.proportions) == {"dog_ratio": 0.66, "structure_ratio": 0.5, "truncate": 4.0}
    hr.save(stack, tmp_path / "old.hedge")
    other = replace(stack, features=replace(stack.features, proportions=Proportions(0.4, 0.9, 3.0)))
    hr.save(other, tmp_path / "new.hedge")
    loaded = hr.load(tmp_path / "new.hedge")
    assert vars(loaded.features.proportions) == {"dog_ratio": 0.4, "structure_ratio": 0.9, "truncate": 3.0}
    planes = images[0][None].astype(np.float32)
    assert (loaded.features.compute(planes) != stack.features.compute(planes)).any()
    np.testing.assert_array_equal(
        hr.load(tmp_path / "old.hedge").features.compute(planes), stack.features.compute(planes)
    )


@pytest.mark.parametrize("features", ["bank", "channels", ("bank", "channels")])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_features_of_a_volume_in_the_plane_are_those_of_its_slices(features, depth):
    volume = np.random.default_rng(0).normal(size=(2, depth, 13, 17)).astype(np.float32)
    config = replace(SMALL, features=features)
    slices = [np.ascontiguousarray(volume[:, z]) for z in range(depth)]
    of_volume, (computed,) = fit_features([volume], config)
    of_slices, by_slice = fit_features(slices, config)
    np.testing.assert_allclose(of_volume.mean, of_slices.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(of_volume.compute(volume), computed)
    assert (of_volume.dimensions, of_volume.halo_z) == (2, 0)
    for z, plane in enumerate(slices):
        np.testing.assert_array_equal(computed[:, z], of_volume.compute(plane))
        np.testing.assert_allclose(computed[:, z], by_slice[z], rtol=1e-4, atol=1e-4)
    part = Region(2, 9, 3, 14, depth - 1, depth)
    np.testing.assert_array_equal(of_volume.compute(volume, part), part.of_volume(computed))
