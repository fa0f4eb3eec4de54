"""Forests on volumes: what lies in other slices, from growing to prediction."""

from dataclasses import replace

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.channels import Channels
from hedgerow.features.protocol import unfitted
from hedgerow.forest.autocontext import TrainingSet, grow_from
from hedgerow.forest.history import Known
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.planes import build_planes
from hedgerow.forest.samples import choose_pixels, draw_samples
from hedgerow.forest.walk import run_forest
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.progress import silent

SIZES = [(6, 9, 11), (4, 8, 7), (5, 6, 13), (1, 9, 9), (7, 5, 8)]
CONFIG = hr.StackConfig(
    n_levels=1, n_trees=3, max_depth=4, min_split=4, drop_levels=False, sampling=hr.SamplingConfig(step=1),
    context=hr.ContextConfig(window=1, window_z=3, n_offsets=8),
)  # fmt: skip


def volumes(sizes=SIZES):
    """Noise of two values, (1,Z,H,W) each, and as labels (Z,H,W) the value in the slice behind."""
    rng = np.random.default_rng(0)
    channels = [rng.integers(0, 2, (1, *size)).astype(np.float32) for size in sizes]
    return channels, [np.concatenate([one[0, 1:], one[0, -1:]]).astype(np.uint8) for one in channels]


def columns(sizes=SIZES):
    """Labels (Z,H,W) that are the same in all slices, and as channels (1,Z,H,W) the labels in noise."""
    rng = np.random.default_rng(0)
    targets = [np.broadcast_to(rng.integers(0, 2, size[1:]), size).astype(np.uint8) for size in sizes]
    return [(target + rng.normal(0, 0.7, target.shape))[None].astype(np.float32) for target in targets], targets


def training_set(config, made=volumes):
    """What growing reads of volumes; each is a group of its own."""
    channels, targets = made()
    images = [
        LabelledImage(one, target, group=np.full(target.shape, i, np.int32))
        for i, (one, target) in enumerate(zip(channels, targets, strict=True))
    ]
    samples = draw_samples(images, config)
    labelled, features = LabelledSet(images, (0, 1), 255, "uint8"), Channels(1, **unfitted(1))
    planes = build_planes(labelled, features, channels.__getitem__, samples, config)
    return TrainingSet(labelled, features, planes, samples, "images", Known())


def grown(config, made=volumes):
    """The levels of a stack, and their scores on volumes held out."""
    stack = grow_from(training_set(config, made), config, silent)
    return stack.levels, stack.settings["held_out"]


@pytest.mark.parametrize("context", [{}, {"n_probes": 2}, {"radii": (0, 1)}])
def test_a_window_of_three_slices_sees_the_neighbour_in_z(context):
    config = replace(CONFIG, context=replace(CONFIG.context, **context))
    (forest,), scores = grown(config)
    assert scores[0]["accuracy"] > 0.95
    forest.validate()
    assert forest.reach_z == 1
    channels, targets = volumes([(8, 9, 10)])
    found = run_forest(forest, whole_input(channels[0])).argmax(axis=0)
    assert (found == targets[0]).mean() > 0.95


def test_a_window_of_one_slice_does_not():
    (forest,), scores = grown(replace(CONFIG, context=replace(CONFIG.context, window=3, window_z=1)))
    assert scores[0]["accuracy"] < 0.65
    assert forest.reach_z == 0


def test_the_level_before_is_read_in_other_slices():
    """What one level says of the slices in front and behind helps the next to tell noise from labels."""
    context = replace(CONFIG.context, n_channels=3)
    config = replace(CONFIG, n_levels=2, n_trees=8, max_depth=6, context=context)
    levels, scores = grown(config, columns)
    is_before = (levels[1].channel >= 1) & levels[1].is_read
    assert levels[1].offset[..., 0][is_before].any()
    assert scores[1]["accuracy"] > scores[0]["accuracy"]
    alone = replace(config, context=replace(context, window_z=1))
    assert scores[1]["accuracy"] > grown(alone, columns)[1][1]["accuracy"] + 0.02


def test_images_are_grown_as_they_were_whatever_the_window_in_z():
    """An image has no other slices: neither the offsets nor the random numbers know of them."""
    images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    config = replace(CONFIG, n_levels=2, context=hr.ContextConfig(window=9, n_offsets=3))
    flat, deep = (
        hr.fit_stack(images, labels, replace(config, context=replace(config.context, window_z=n))) for n in (1, 9)
    )
    for one, other in zip(flat.levels, deep.levels, strict=True):
        for name in ("left_child", "threshold", "channel", "offset", "votes"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_samples_of_a_volume_know_their_slice():
    ready = training_set(CONFIG)
    samples, starts = ready.samples, np.cumsum([0, *(np.prod(size) for size in SIZES[:-1])])
    assert len(samples) == sum(np.prod(size) for size in SIZES)
    for i, image in enumerate(ready.labelled):
        mine = samples.image == i
        place = samples.z[mine], samples.row[mine], samples.column[mine]
        np.testing.assert_array_equal(image.target[place], samples.target[mine])
        np.testing.assert_array_equal(samples.pixel[mine], starts[i] + np.ravel_multi_index(place, SIZES[i]))


def test_planes_hold_the_slices_of_a_volume():
    planes = training_set(replace(CONFIG, context=replace(CONFIG.context, radii=(0, 1), n_probes=2))).planes
    for i, size in enumerate(SIZES):
        whole = planes.image(i)
        assert whole.shape == (2, *size)
        np.testing.assert_array_equal(whole[0], volumes()[0][i][0])
        expected = [run_box(plane) for plane in volumes()[0][i][0]]
        np.testing.assert_allclose(whole[1], expected, atol=1e-6)


def run_box(plane):
    """The mean over 3 x 3 pixels, edges repeated."""
    padded = np.pad(plane, 1, mode="edge")
    return sum(padded[i : i + plane.shape[0], j : j + plane.shape[1]] for i in range(3) for j in range(3)) / 9


def test_a_lattice_of_pixels_is_one_of_every_slice():
    target = np.random.default_rng(0).integers(0, 3, (4, 21, 22)).astype(np.uint8)
    target[2] = UNLABELLED_INDEX
    z, rows, columns = choose_pixels(target, hr.SamplingConfig(step=3), np.random.default_rng(1))
    assert set(z.tolist()) == {0, 1, 3}
    assert np.bincount(z).tolist() == [7 * 8, 7 * 8, 0, 7 * 8]
    assert (rows % 3 == 0).all()
    assert (columns % 3 == 0).all()


def test_depth_features_of_a_volume_are_refused():
    volumes_of_noise = training_set(CONFIG)
    depth = hr.fit_stack(*depth_images(), replace(CONFIG, features="depth")).features
    with pytest.raises(InputError, match="depth features are for images, and this is a volume of 7 slices"):
        build_planes(volumes_of_noise.labelled, depth, volumes()[0].__getitem__, volumes_of_noise.samples, CONFIG)


def depth_images():
    rng = np.random.default_rng(1)
    labels = [rng.integers(0, 2, (20, 20)) for _ in range(4)]
    return [(1000 + 500 * label).astype(np.uint16) for label in labels], labels


def test_a_window_without_a_centre_is_refused():
    with pytest.raises(ConfigError, match="window_z is 4; it must be odd"):
        hr.ContextConfig(window_z=4)
