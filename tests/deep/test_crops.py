"""Batches: altered as `images.altering` alters, on the network's device."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hedgerow.config import AugmentConfig, ConvConfig
from hedgerow.deep.crops import Sheet, _parts, _sources, draw_batch
from hedgerow.images import altering
from hedgerow.images.labelled import LabelledImage

STRONG = AugmentConfig(rotation=180.0, flip=True, scale=0.3, shift=0.2, brightness=0.5, contrast=0.5)


def image(size=(21, 34), n_planes=2, seed=0):
    rng = np.random.default_rng(seed)
    planes = rng.normal(size=(n_planes, *size)).astype(np.float32)
    return LabelledImage(planes, rng.integers(0, 3, size).astype(np.uint8))


def sheet(of, **changes):
    made = Sheet(torch.from_numpy(of.planes), len(of.planes), torch.from_numpy(of.target))
    return replace(made, **changes)


@pytest.mark.parametrize("is_blank", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_part_shows_what_altering_shows(seed, is_blank):
    of, still = image(seed=seed), replace(STRONG, brightness=0.0, contrast=0.0)
    move = altering.drawn_move(of.size, still, np.random.default_rng(seed))
    copy = altering.augmented_copy(of, still, np.random.default_rng(seed), 0.0 if is_blank else None)
    source = _sources([move], [[3, 5]], [10, 12], torch.device("cpu"))
    planes, target = (batch[0] for batch in _parts([sheet(of, is_blank=is_blank)], source))
    same = target.numpy() == copy.target[3:13, 5:17]
    assert same.mean() > 0.98, "a place between two pixels may be rounded the other way"
    np.testing.assert_allclose(planes.numpy()[:, same], copy.planes[:, 3:13, 5:17][:, same], atol=1e-3)


def test_brightness_and_contrast_are_those_of_altering_and_spare_the_context():
    of, light = image(), AugmentConfig(rotation=0.0, brightness=0.7, contrast=0.6)
    config = ConvConfig(batch=1, augment=light, crop=64, seed=3)
    batch = draw_batch([sheet(of, n_inputs=1)], config, 5)
    rng = np.random.default_rng((3, 11, 5))
    altering.drawn_move(of.size, light, rng)
    rng.integers(of.target.size)
    contrast, brightness = altering.drawn_light(light, rng)
    first = of.planes[0]
    np.testing.assert_allclose(
        batch.planes[0, 0].numpy(),
        first.mean() + (first - first.mean()) * contrast + first.std() * brightness,
        atol=1e-4,
    )
    np.testing.assert_allclose(batch.planes[0, 1].numpy(), of.planes[1], atol=1e-5)


def test_every_crop_has_a_label_however_few_there_are():
    target = np.full((60, 70), 255, np.uint8)
    target[49:52, 2:5] = 1
    lone = sheet(replace(image((60, 70)), target=target))
    config = ConvConfig(batch=4, crop=16, augment=replace(STRONG, shift=0.0))
    for step in range(10):
        batch = draw_batch([lone], config, step)
        assert batch.planes.shape == (4, 2, 16, 16)
        assert batch.target.shape == (4, 16, 16)
        is_labelled = (batch.target != 255).flatten(1).any(dim=1)
        assert is_labelled.all()


def test_all_images_come_equally_often_and_a_step_is_always_the_same():
    sheets = [sheet(replace(image(seed=seed), planes=np.full((1, 21, 34), seed, np.float32))) for seed in range(3)]
    config = ConvConfig(batch=2, crop=16, augment=AugmentConfig(rotation=0.0), seed=1)
    seen = [draw_batch(sheets, config, step).planes[:, 0, 0, 0] for step in range(6)]
    assert sorted(torch.cat(seen).tolist()) == [0.0] * 4 + [1.0] * 4 + [2.0] * 4
    assert torch.equal(draw_batch(sheets, config, 3).planes, draw_batch(sheets, config, 3).planes)


def test_images_of_different_sizes_make_one_batch():
    config = ConvConfig(batch=4, crop=24)
    batch = draw_batch([sheet(image((9, 40))), sheet(image((30, 12)))], config, 0)
    assert batch.planes.shape == (4, 2, 24, 24)
    assert (batch.target == 255).any(), "what lies beyond an image is not labelled"


def test_depths_become_nearer_and_farther_where_something_was_seen():
    rng = np.random.default_rng(0)
    seen = rng.random((24, 24)) < 0.7
    planes = np.stack([rng.normal(size=(24, 24)) * seen, seen, rng.random((24, 24))]).astype(np.float32)
    of = sheet(replace(image((24, 24)), planes=planes), n_inputs=2, is_blank=True)
    config = ConvConfig(batch=8, crop=24, augment=AugmentConfig(rotation=0.0, brightness=0.5, contrast=0.3))
    shown = draw_batch([of], config, 0).planes.numpy()
    assert (shown[:, 1] == planes[1]).all(), "where something was seen"
    np.testing.assert_allclose(shown[:, 2], planes[None, 2].repeat(8, 0), atol=1e-5, err_msg="context stays")
    assert (shown[:, 0][:, ~seen] == 0).all()
    for crop in shown[:, 0]:
        stretch, shift = np.polyfit(planes[0][seen], crop[seen], 1)
        np.testing.assert_allclose(crop[seen], stretch * planes[0][seen] + shift, atol=1e-5)
        assert 0.7 <= stretch <= 1.3
        assert abs(shift) <= 0.5
    assert np.ptp(shown[:, 0][:, seen][:, 0]) > 0.1


@pytest.mark.parametrize("is_blank", [False, True])
def test_images_of_one_size_are_looked_up_together_as_they_are_one_by_one(is_blank):
    sheets = [sheet(image(seed=seed, n_planes=3), n_inputs=2, is_blank=is_blank) for seed in range(3)]
    rng = np.random.default_rng(0)
    source = torch.from_numpy(rng.uniform(-9, 40, size=(3, 2, 11, 13)).astype(np.float32))
    planes, target = _parts(sheets, source)
    for k, of_image in enumerate(sheets):
        alone, labels = _parts([of_image], source[k : k + 1])
        assert torch.equal(planes[k], alone[0])
        assert torch.equal(target[k], labels[0])


@pytest.mark.parametrize("is_blank", [False, True])
def test_what_the_level_before_says_is_left_out_of_a_part_of_the_crops(is_blank):
    of = sheet(image(n_planes=4), n_inputs=2, n_before=1, is_blank=is_blank)
    config = ConvConfig(batch=4, crop=16, augment=STRONG)
    whole = [draw_batch([of], replace(config, drop=0.0), step) for step in range(50)]
    dropped = [draw_batch([of], replace(config, drop=0.3), step) for step in range(50)]
    gone = 0
    for with_all, batch in zip(whole, dropped, strict=True):
        for crop in range(4):
            is_gone = bool((batch.planes[crop, 3] == 0).all())
            expected = with_all.planes[crop].clone()
            expected[3] *= not is_gone
            torch.testing.assert_close(batch.planes[crop], expected, rtol=0, atol=0)  # and nothing else changes
            gone += is_gone
    assert 40 <= gone <= 80  # of 200
    assert (draw_batch([of], replace(config, drop=1.0), 0).planes[:, 3] == 0).all()


def test_networks_that_read_nothing_are_given_all_they_read():
    of, config = sheet(image(n_planes=2)), ConvConfig(batch=4, crop=16, drop=1.0)
    assert (draw_batch([of], config, 0).planes != 0).all()
