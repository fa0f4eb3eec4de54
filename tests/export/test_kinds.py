"""Kinds of feature in exports: those that they can compute, and those for which the caller gives the features."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.export.c import export_c
from hedgerow.export.kinds import entry_of
from hedgerow.export.onnx_model import export_onnx
from hedgerow.features.bank import Proportions
from hedgerow.features.protocol import FeatureSet
from hedgerow.progress import silent
from helpers.c_models import compiled_stacks, random_stack, stack_of
from helpers.refusals import assert_one_sentence


@dataclass(frozen=True)
class Doubled(FeatureSet):
    """A kind that no export has heard of: both channels, twice as large."""

    kind: ClassVar[str] = "doubled"
    layout: ClassVar[str] = "planes"

    n_inputs: int
    mean: np.ndarray
    std: np.ndarray

    @property
    def names(self):
        return "first", "second"

    def raw(self, image):
        return 2 * image


@dataclass(frozen=True)
class Stretching(Doubled):
    """A kind that stretches offsets, but continues as the edge does, which no export can do."""

    kind: ClassVar[str] = "stretching"

    def stretch(self, image):
        return np.ones(image.shape[1:], np.float32)


def strange(kind):
    """A stack whose features are of a strange kind."""
    stack = stack_of("channels")
    return replace(stack, features=kind(2, stack.features.mean, stack.features.std))


@pytest.fixture(scope="module")
def joined():
    """A stack of two kinds of feature, and an image that it has not seen, both channels of whole numbers."""
    rng = np.random.default_rng(3)
    images = [rng.integers(0, 9, (2, 20, 24)).astype(np.float32) for _ in range(3)]
    labels = [(image[0] > 4).astype(int) + (image[1] > 6) for image in images]
    config = hr.StackConfig(
        features="bank+channels", n_levels=2, drop_levels=False, n_trees=3, max_depth=5, sigmas=(0.7, 1.6)
    )
    return hr.fit_stack(images[:2], labels[:2], config, progress=silent), images[2]


@pytest.fixture(scope="module")
def reshaped():
    """A stack whose filters are not those of today's defaults: the smoothing of the structure tensor is the widest."""
    stack = stack_of("colour")
    return replace(stack, features=replace(stack.features, proportions=Proportions(0.4, 0.9, 3.0)))


@pytest.fixture
def in_onnx():
    """Runs a stack in onnxruntime: in_onnx(stack, filters, features=planes) -> labels."""
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")

    def run(folder, stack, filters=True, **given):
        path = export_onnx(stack, folder / "model.onnx", filters)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.run(["labels"], given)[0]

    return run


@pytest.mark.parametrize(("export", "target"), [(export_c, "C"), (export_onnx, "ONNX")], ids=["C", "ONNX"])
def test_a_kind_that_cannot_be_computed_is_refused_with_the_remedy(export, target, tmp_path):
    if export is export_onnx:
        pytest.importorskip("onnx")
    with pytest.raises(hr.InputError) as problem:
        export(strange(Doubled), tmp_path / "m.c")
    assert_one_sentence(problem, "'doubled'", f"in {target}", "--no-filters", "filters=False")
    for filters in (True, False):
        with pytest.raises(hr.InputError) as problem:
            export(strange(Stretching), tmp_path / "m.c", filters=filters)
        assert_one_sentence(problem, "'stretching'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("export", "target"), [(export_c, "C"), (export_onnx, "ONNX")], ids=["C", "ONNX"])
def test_images_that_are_normalised_are_refused_with_the_remedy(export, target, tmp_path):
    if export is export_onnx:
        pytest.importorskip("onnx")
    stack = stack_of("offsets")
    stack = replace(stack, features=replace(stack.features, normalise=True))
    with pytest.raises(hr.InputError) as problem:
        export(stack, tmp_path / "m.c")
    assert_one_sentence(problem, f"in {target}", "normalise = false", "--no-filters", "filters=False")
    export(stack, tmp_path / "m.c", filters=False)


@pytest.mark.parametrize("target", ["C", "ONNX"])
def test_features_in_three_dimensions_are_refused_with_the_remedy(target):
    features = stack_of("offsets").features.for_volumes(2.0)
    with pytest.raises(hr.InputError) as problem:
        entry_of(features, {"bank": None}, target)
    assert_one_sentence(problem, f"in {target}", "dimensions = 2", "--no-filters", "filters=False")


@pytest.mark.parametrize("kind", ["stack", "net"])
@pytest.mark.parametrize("filters", [True, False])
def test_splits_that_look_at_other_slices_are_refused(kind, filters, tmp_path):
    stack = random_stack("channels", reach_z=1)
    assert max(forest.reach_z for forest in stack.levels) == 1
    if kind == "net":
        pytest.importorskip("torch")
    model = stack if kind == "stack" else hr.to_convnet(stack)
    if kind == "stack":
        with pytest.raises(hr.InputError) as problem:
            export_c(model, tmp_path / "model.c", filters=filters)
        assert_one_sentence(problem, "neighbouring slices", "dimensions = 2")
    pytest.importorskip("onnx")
    with pytest.raises(hr.InputError) as problem:
        export_onnx(model, tmp_path / "model.onnx", filters)
    assert_one_sentence(problem, "neighbouring slices", "dimensions = 2")
    assert not list(tmp_path.iterdir())


def test_the_caller_can_give_features_of_any_kind(tmp_path, in_onnx):
    stack = strange(Doubled)
    planes = np.random.default_rng(0).integers(0, 2000, (2, 9, 14)).astype(np.float32)
    expected = stack.predict(planes, progress=silent)
    assert len(np.unique(expected)) > 1
    np.testing.assert_array_equal(in_onnx(tmp_path, stack, False, features=stack.features.compute(planes)), expected)
    model = compiled_stacks(tmp_path, {"m": stack}, filters=False)["m"]
    np.testing.assert_array_equal(model.predict_features(planes)[0], expected)


def test_joined_features_are_computed_in_onnx_and_refused_in_c(joined, tmp_path, in_onnx):
    stack, planes = joined
    expected = stack.predict(planes, progress=silent)
    np.testing.assert_array_equal(in_onnx(tmp_path, stack, image=planes), expected)
    with pytest.raises(hr.InputError) as problem:
        export_c(stack, tmp_path / "m.c")
    assert_one_sentence(problem, "'joined'", "--no-filters")
    model = compiled_stacks(tmp_path, {"m": stack}, filters=False)["m"]
    np.testing.assert_array_equal(model.predict_features(planes)[0], expected)


def test_a_strange_member_of_joined_features_is_named(joined, tmp_path):
    pytest.importorskip("onnx")
    stack, _ = joined
    bank = stack.features.members[0]
    members = (bank, Doubled(2, np.zeros(2, np.float32), np.ones(2, np.float32)))
    with pytest.raises(hr.InputError) as problem:
        export_onnx(replace(stack, features=replace(stack.features, members=members)), tmp_path / "m.onnx")
    assert_one_sentence(problem, "'doubled'", "--no-filters")


@pytest.mark.parametrize("size", [(1, 1), (3, 40), (31, 23)])
def test_the_shape_of_filters_is_the_models_own(reshaped, size, tmp_path, in_onnx):
    image = np.random.default_rng(0).integers(0, 4000, (*size, 3)).astype(np.float32)
    expected = reshaped.predict(image, progress=silent)
    planes = np.ascontiguousarray(np.moveaxis(image, 2, 0))
    np.testing.assert_array_equal(in_onnx(tmp_path, reshaped, image=planes), expected)
    labels, proba = compiled_stacks(tmp_path, {"m": reshaped})["m"].predict(image)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_array_equal(proba, reshaped.predict_proba(image, progress=silent))
