"""Tiles must not change a prediction, whatever their size, the image's, or the kind of features."""

import dataclasses
import gc

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.errors import ConfigError
from hedgerow.forest.level_input import fitting_tile
from hedgerow.kernels import buffers
from hedgerow.predict.tiling import predict_tiles
from helpers.blobs import SMALL, blobs


@pytest.fixture(scope="module", params=["bank", "windows", "oblique", "depth", "channels"])
def stack_and_image(request):
    images, labels = blobs(4, dtype=np.uint16, shape=(60, 70))
    changes = {
        "bank": {},
        "windows": {"context": hr.ContextConfig(window=9, radii=(0, 2))},
        "oblique": {"context": hr.ContextConfig(window=9, n_probes=2)},
        "depth": {"features": "depth", "context": hr.ContextConfig(n_offsets=10, offset_sigma=60.0)},
        "channels": {"features": "channels"},
    }[request.param]
    if request.param == "channels":
        images = [np.stack([image, image.T[: len(image), : len(image[0])].mean() - image]) for image in images]
    config = dataclasses.replace(SMALL, n_levels=3, **changes)
    return hr.fit_stack(images, labels, config), images[0]


@pytest.mark.parametrize("tile", [7, 16, 33, 64])
def test_tiles_equal_the_whole_bit_for_bit(stack_and_image, tile):
    stack, image = stack_and_image
    whole = stack.level_outputs(image, tile=1000)
    for level, part in zip(whole, stack.level_outputs(image, tile=tile), strict=True):
        np.testing.assert_array_equal(level, part)
    np.testing.assert_array_equal(stack.predict_proba(image, tile=tile), whole[-1])
    np.testing.assert_array_equal(stack.predict(image, tile=tile), np.array(stack.classes)[whole[-1].argmax(axis=0)])


def test_probabilities_sum_to_one(stack_and_image):
    stack, image = stack_and_image
    for proba in stack.level_outputs(image):
        assert proba.dtype == np.float32
        np.testing.assert_allclose(proba.sum(axis=0), 1, atol=1e-5)


def test_nothing_beyond_the_receptive_field_matters(stack_and_image):
    stack, image = stack_and_image
    far = stack.receptive_field + 1
    wide = np.concatenate([image, image, image], axis=-1)[..., : image.shape[-1] + 60]
    wide = np.pad(wide, [(0, 0)] * (wide.ndim - 1) + [(0, far)], mode="edge")
    changed = wide.copy()
    changed[..., -1] = changed[..., -1] // 2 + 7 if np.issubdtype(wide.dtype, np.integer) else changed[..., -1] + 7
    before, after = stack.predict_proba(wide), stack.predict_proba(changed)
    np.testing.assert_array_equal(before[:, :, :-far], after[:, :, :-far])


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (37, 2), (3, 3)])
def test_any_size_can_be_predicted(shape):
    images, labels = blobs(4)
    stack = hr.fit_stack(images, labels, SMALL)
    image = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    assert stack.predict(image).shape == shape
    np.testing.assert_array_equal(stack.predict(image, tile=2), stack.predict(image))


def test_tiles_come_one_by_one_and_cover_the_image():
    images, labels = blobs(4)
    stack = hr.fit_stack(images, labels, SMALL)
    reports = []
    covered = np.zeros(images[0].shape, int)
    for region, outputs, size in predict_tiles(stack, images[0], tile=16, progress=lambda *e: reports.append(e)):
        region.of(covered)[...] += 1
        assert outputs[-1].shape == (3, region.height, region.width)
        assert size == images[0].shape
    assert (covered == 1).all()
    assert reports[-1][1] == reports[-1][2] == len(reports)


def test_tile_size_follows_memory():
    images, labels = blobs(4)
    stack = hr.fit_stack(images, labels, SMALL)
    assert fitting_tile(stack, 1 << 32) > fitting_tile(stack, 1 << 25) >= 64
    assert fitting_tile(stack, 1 << 32) == fitting_tile(stack, 1 << 40), "no larger than its halo justifies"
    assert fitting_tile(stack, 0) == max(64, 2 * stack.receptive_field)
    with pytest.raises(ConfigError, match="tile"):
        stack.predict(images[0], tile=0)


@pytest.mark.parametrize("stack_and_image", ["bank"], indirect=True)
def test_memory_is_shared_by_tiles_and_let_go_after_the_last(stack_and_image, monkeypatch):
    stack, image = stack_and_image
    whole = stack.predict_proba(image)
    buffers.release()
    monkeypatch.setattr(buffers, "MIN_BYTES", 4)
    idle = [len(buffers._idle) for _ in predict_tiles(stack, image, tile=30)]
    assert max(idle) > 0
    assert not buffers._idle
    np.testing.assert_array_equal(stack.predict_proba(image, tile=30), whole)
    for _ in predict_tiles(stack, image, tile=30):
        break  # whoever asked wants no more
    gc.collect()
    assert not buffers._idle
