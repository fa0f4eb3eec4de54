"""Training pixels and augmented copies."""

import numpy as np
import pytest

from hedgerow.config import AugmentConfig, SamplingConfig
from hedgerow.forest.samples import choose_pixels
from hedgerow.images.altering import augmented_copy, drawn_move
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage


def labelled_image(rng, shape=(40, 50), n_planes=2):
    target = rng.integers(0, 3, shape).astype(np.uint8)
    target[:, 45:] = UNLABELLED_INDEX
    planes = np.stack([target.astype(np.float32) * 10, *rng.random((n_planes - 1, *shape))]).astype(np.float32)
    return LabelledImage(planes, target, group=np.arange(target.size).reshape(shape).astype(np.int32))


def test_grid_keeps_its_fraction_of_the_lattice():
    target = np.random.default_rng(0).integers(0, 4, (301, 303)).astype(np.uint8)
    target[:60] = UNLABELLED_INDEX
    _, rows, columns = choose_pixels(target[None], SamplingConfig(step=3, fraction=0.25), np.random.default_rng(1))
    assert (rows % 3 == 0).all()
    assert (columns % 3 == 0).all()
    assert (target[rows, columns] != UNLABELLED_INDEX).all()
    assert len(rows) == pytest.approx(0.25 * (target[::3, ::3] != UNLABELLED_INDEX).sum(), rel=0.05)
    assert (np.diff(rows * 303 + columns) > 0).all(), "in reading order"


@pytest.mark.parametrize("place", [(30, 60), (31, 61)])
def test_grid_does_not_lose_a_rare_class_on_or_beside_the_lattice(place):
    target = np.zeros((90, 90), np.uint8)
    target[place] = 1
    for seed in range(5):
        _, rows, columns = choose_pixels(
            target[None], SamplingConfig(step=3, fraction=0.01), np.random.default_rng(seed)
        )
        assert (target[rows, columns] == 1).sum() == 1


def test_grid_takes_enough_of_a_scribble_that_runs_between_its_lines():
    target = np.full((50, 50), UNLABELLED_INDEX, np.uint8)
    target[11, 5:25] = 0
    target[21, :] = 1
    _, rows, columns = choose_pixels(target[None], SamplingConfig(step=2, at_least=30), np.random.default_rng(0))
    assert np.bincount(target[rows, columns]).tolist() == [20, 30]


def test_a_fixed_number_per_class():
    target = np.zeros((50, 50), np.uint8)
    target[:3] = 1
    target[4, :7] = 2
    target[10:] = UNLABELLED_INDEX
    _, rows, columns = choose_pixels(
        target[None], SamplingConfig(kind="per_class", per_class=20), np.random.default_rng(0)
    )
    assert np.bincount(target[rows, columns]).tolist() == [20, 20, 7]
    assert len(set(zip(rows.tolist(), columns.tolist(), strict=True))) == 47


def test_nothing_changes_without_settings():
    image = labelled_image(np.random.default_rng(0))
    copy = augmented_copy(image, AugmentConfig(rotation=0), np.random.default_rng(1))
    np.testing.assert_allclose(copy.planes, image.planes, atol=1e-5)
    np.testing.assert_array_equal(copy.target, image.target)
    assert copy.is_copy


def test_labels_move_with_the_image_and_are_never_blended():
    """Plane 0 holds ten times the label: wherever the copy is not between pixels, the two must still agree."""
    image = labelled_image(np.random.default_rng(0))
    blocky = np.kron(np.random.default_rng(1).integers(0, 3, (4, 5)), np.ones((10, 10)))
    image = LabelledImage(10 * blocky[None].astype(np.float32), blocky.astype(np.uint8), group=image.group)
    config = AugmentConfig(rotation=180, flip=True, scale=0.3, shift=0.2)
    for seed in range(10):
        copy = augmented_copy(image, config, np.random.default_rng(seed))
        inside = copy.target != UNLABELLED_INDEX
        assert inside.sum() > 0
        assert set(np.unique(copy.target[inside])) <= {0, 1, 2}
        # Bilinear values equal the label wherever all four neighbours agree, which is most of a blocky image.
        agree = np.abs(copy.planes[0] / 10 - copy.target)[inside] < 1e-4
        assert agree.mean() > 0.7
        assert np.abs(copy.planes[0] / 10 - copy.target)[inside].max() <= 2


def test_what_comes_from_outside_is_unlabelled():
    image = LabelledImage(np.ones((1, 40, 40), np.float32), np.zeros((40, 40), np.uint8))
    for seed in range(5):
        copy = augmented_copy(image, AugmentConfig(rotation=0, shift=0.5), np.random.default_rng(seed))
        outside = copy.target == UNLABELLED_INDEX
        assert outside.any()
        rows, columns = outside.all(axis=1).sum(), outside.all(axis=0).sum()
        assert outside.sum() == rows * 40 + columns * 40 - rows * columns, "full rows and columns, nothing else"


def test_flip_mirrors_exactly():
    image = labelled_image(np.random.default_rng(0))
    seen = set()
    for seed in range(20):
        copy = augmented_copy(image, AugmentConfig(rotation=0, flip=True), np.random.default_rng(seed))
        if np.array_equal(copy.target, image.target):
            seen.add("same")
        else:
            np.testing.assert_array_equal(copy.target, image.target[:, ::-1])
            np.testing.assert_allclose(copy.planes, image.planes[:, :, ::-1], atol=1e-5)
            seen.add("mirrored")
    assert seen == {"same", "mirrored"}


def test_brightness_and_contrast_leave_labels_alone():
    image = labelled_image(np.random.default_rng(0))
    config = AugmentConfig(rotation=0, brightness=0.5, contrast=0.5)
    copy = augmented_copy(image, config, np.random.default_rng(3))
    np.testing.assert_array_equal(copy.target, image.target)
    gain, shift = np.polyfit(image.planes[0].ravel(), copy.planes[0].ravel(), 1)
    np.testing.assert_allclose(copy.planes[0], gain * image.planes[0] + shift, atol=1e-3)
    assert 0.5 <= gain <= 1.5
    assert abs(gain - 1) > 0.01


def test_depth_is_looked_up_not_blended():
    depth = np.random.default_rng(0).choice([0.0, 1000.0, 3000.0], (1, 30, 30)).astype(np.float32)
    image = LabelledImage(depth, np.zeros((30, 30), np.uint8))
    config = AugmentConfig(rotation=90, shift=0.3, brightness=1, contrast=0.5)
    copy = augmented_copy(image, config, np.random.default_rng(2), blank=0.0)
    assert set(np.unique(copy.planes)) <= {0.0, 1000.0, 3000.0}
    assert (copy.planes[0][copy.target == UNLABELLED_INDEX] == 0).all()


# Volumes


def blocky_volume(shape=(12, 24, 20)):
    """A volume of blocks, ten times its labels."""
    coarse = np.random.default_rng(1).integers(0, 3, [side // 4 for side in shape])
    target = np.kron(coarse, np.ones((4, 4, 4))).astype(np.uint8)
    return LabelledImage(10 * target[None].astype(np.float32), target, group=np.arange(target.size).reshape(shape))


def test_a_tilted_volume_without_angles_is_itself():
    image = blocky_volume()
    copy = augmented_copy(image, AugmentConfig(rotation=0, tilt=1e-9), np.random.default_rng(0), anisotropy=3.0)
    np.testing.assert_allclose(copy.planes, image.planes, atol=1e-4)
    inside = copy.target != UNLABELLED_INDEX
    assert inside.mean() > 0.8, "rounding leaves out some of the border"
    np.testing.assert_array_equal(copy.target[inside], image.target[inside])


def test_labels_of_a_tilted_volume_move_with_it():
    config = AugmentConfig(rotation=15, tilt=15, scale=0.1, shift=0.1)
    for seed in range(4):
        copy = augmented_copy(blocky_volume(), config, np.random.default_rng(seed))
        inside = copy.target != UNLABELLED_INDEX
        assert 0.4 < inside.mean() < 1
        assert (np.abs(copy.planes[0] / 10 - copy.target)[inside] < 1e-4).mean() > 0.4
        assert np.abs(copy.planes[0] / 10 - copy.target)[inside].mean() < 0.3
        assert (copy.target[inside] != blocky_volume().target[inside]).mean() > 0.1


def test_a_turn_out_of_the_plane_is_a_rotation_in_units_of_length():
    """With slices three pixels apart, distances count along z three times as much, and the turn keeps them."""
    config, lengths = AugmentConfig(rotation=30, tilt=40), np.array([3.0, 1.0, 1.0])
    matrix = drawn_move((9, 20, 20), config, np.random.default_rng(2), 3.0).matrix
    turn = np.diag(lengths) @ matrix @ np.diag(1 / lengths)
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(turn) == pytest.approx(1)
    assert np.abs(matrix[0, 1:]).min() > 1e-3


def test_without_tilt_every_slice_of_a_volume_moves_in_its_plane():
    image = blocky_volume()
    copy = augmented_copy(image, AugmentConfig(rotation=40, shift=0.1), np.random.default_rng(3))
    for z in range(12):
        plane = LabelledImage(image.planes[:, z], image.target[z])
        alone = augmented_copy(plane, AugmentConfig(rotation=40, shift=0.1), np.random.default_rng(3))
        np.testing.assert_array_equal(copy.target[z], alone.target)
