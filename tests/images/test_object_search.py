"""Objects from probabilities: the same for any tiles, in images and in volumes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

import hedgerow as hr
from hedgerow.errors import ConfigError
from hedgerow.images.instances import OBJECT_LEGEND, Finding, Kinds, classes_of_objects, kinds_of
from hedgerow.images.object_search import find_in, find_tiled
from helpers.blobs import QUICK, cells, discs, numbered_discs


def one_hot(classes, n):
    return np.stack([(classes == value).astype(np.float32) for value in range(n)])


def test_touching_discs_are_separated_with_and_without_a_boundary():
    truth = numbered_discs((60, 90), [(30, 25, 14), (30, 50, 14), (30, 75, 10)])
    for numbers in (
        hr.objects((truth > 0).astype(float)),
        hr.objects(one_hot(classes_of_objects(truth), 3), legend=OBJECT_LEGEND),
    ):
        assert hr.object_scores([truth], [numbers]).average_precision[0.8] == 1


def test_objects_are_numbered_in_the_order_of_their_first_pixels():
    numbers = hr.objects((discs((40, 60), [(28, 10, 7), (10, 40, 7), (28, 30, 7)]) > 0).astype(float))
    firsts = [int(np.flatnonzero(numbers.ravel() == number)[0]) for number in range(1, 4)]
    assert firsts == sorted(firsts)
    assert numbers.max() == 3
    assert numbers.dtype == np.int32


def test_touching_objects_of_two_classes_stay_apart():
    proba = np.zeros((3, 20, 40), np.float32)
    proba[0], proba[0, 5:15, 5:35] = 1, 0
    proba[1, 5:15, 5:20] = proba[2, 5:15, 20:35] = 1
    objects = find_in(proba, kinds_of((0, 4, 9), hr.Legend()), Finding())
    assert objects.values.tolist() == [4, 9]
    assert (objects.numbers[10, 6], objects.numbers[10, 33], objects.numbers[0, 0]) == (1, 2, 0)
    only = find_in(proba, kinds_of((0, 4, 9), hr.Legend({9: "cell"}), ["Cell"]), Finding())
    assert only.values.tolist() == [9]


def test_what_is_never_sure_is_no_object():
    """Pixels above one half belong to an object only if it is sure somewhere."""
    proba = np.zeros((30, 60))
    proba[5:25, 5:25], proba[5:25, 35:55] = 0.6, 0.6
    proba[13:17, 43:47] = 0.95
    numbers = hr.objects(proba)
    assert numbers.max() == 1
    assert numbers[15, 45] == 1
    assert 300 < (numbers > 0).sum() <= 400  # smoothing rounds the corners


def test_size_range_holes_and_diameter():
    proba = (discs((80, 120), [(20, 20, 12), (20, 60, 6), (60, 20, 2), (60, 80, 16)]) > 0).astype(float)
    proba[56:65, 76:85] = 0
    sizes = lambda **options: np.bincount(hr.objects(proba, **options).ravel())[1:].tolist()  # noqa: E731
    everything = sizes(min_size=1, diameter=24)
    assert len(everything) == 4
    assert sizes(min_size=100, max_size=500, diameter=24) == [size for size in everything if 100 <= size <= 500]
    with_hole, whole = (max(sizes(min_dip=3, diameter=10, fill_holes=n)) for n in (0, 100))
    assert 70 < whole - with_hole <= 81
    assert len(sizes(diameter=40)) < 4  # specks, where objects are so large


def test_an_elongated_object_stays_whole_unless_any_bump_may_split_it():
    rows, columns = np.mgrid[:60, :120]
    ellipse = (((rows - 30) / 12) ** 2 + ((columns - 60) / 26) ** 2 < 1).astype(float)
    assert hr.objects(ellipse).max() == 1
    noisy = ellipse * (0.8 + 0.2 * np.random.default_rng(0).random(ellipse.shape))
    assert hr.objects(noisy, min_dip=0, min_size=1, diameter=6).max() > 1
    assert hr.objects(noisy, min_dip=3, diameter=6).max() == 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (2, 3)])
def test_tiny_and_empty_images(shape):
    assert hr.objects(np.zeros(shape)).max() == 0
    assert hr.objects(np.ones(shape), min_size=1).max() == 1


def test_a_model_learns_objects_and_finds_them():
    images, objects = cells(3)
    model = hr.fit(images[:2], objects[:2], config=QUICK, label_kind="objects")
    assert [model.legend.name(value) for value in model.classes] == ["background", "object", "boundary"]
    numbers = model.predict_objects(images[2])
    assert hr.object_scores([objects[2]], [numbers]).average_precision[0.5] > 0.8
    fewer = model.predict_objects(images[2], min_size=10_000)
    assert fewer.max() == 0


sides = st.integers(1, 40)
spacings = st.tuples(*[st.sampled_from((0.5, 1.0, 3.0))] * 3)


@given(
    st.one_of(st.tuples(st.just(1), sides, sides), st.tuples(st.integers(2, 9), *[st.integers(1, 20)] * 2)),
    st.tuples(*[st.integers(2, 13)] * 3),
    st.integers(1, 2),
    st.builds(Finding, st.floats(1, 9), st.integers(0, 9), st.just(0), st.integers(0, 30), st.floats(0, 0.2), spacings),
    st.integers(0, 9),
)
def test_tiles_change_nothing(shape, tile, n_classes, finding, seed):
    rng = np.random.default_rng(seed)
    blurred = np.stack([ndimage.gaussian_filter(rng.random(shape), 1.2) for _ in range(n_classes + 2)])
    proba = np.exp(25 * blurred)
    proba = (proba / proba.sum(axis=0)).astype(np.float32)
    values = tuple(range(1, n_classes + 1))
    results = []
    for sides in (shape, tile):
        numbers = np.zeros(shape, np.int32)
        of_objects = find_tiled(
            lambda region: region.of_volume(proba), numbers, Kinds(values, values, n_classes + 1), finding, sides
        )
        results.append((numbers, of_objects))
    for whole, tiled in zip(*results, strict=True):
        np.testing.assert_array_equal(whole, tiled)


@pytest.mark.parametrize("step", [1, 3])
def test_touching_balls_are_separated_also_where_planes_are_far_apart(step):
    z, y, x = np.mgrid[:30:step, :30, :50]
    balls = [(z - 15) ** 2 + (y - 15) ** 2 + (x - middle) ** 2 < 121 for middle in (15, 34)]
    inside = (balls[0] | balls[1]).astype(np.float32)
    numbers = hr.objects(np.stack([1 - inside, inside]), voxel_size=(step, 1, 1))
    assert numbers.shape == z.shape
    assert numbers.max() == 2
    assert (numbers[15 // step, 15, 8], numbers[15 // step, 15, 40]) == (1, 2)
    with pytest.raises(ConfigError, match="three positive numbers"):
        hr.objects(np.stack([1 - inside, inside]), voxel_size=(1, 0, 1))


def test_a_finer_axis_changes_nothing():
    """Each plane three times, and planes a third apart: the same objects."""
    rng = np.random.default_rng(0)
    inside = (ndimage.gaussian_filter(rng.random((16, 40, 40)), 3) > 0.5).astype(np.float32)
    once, often = inside, np.repeat(inside, 3, axis=0)
    coarse = hr.objects(np.stack([1 - once, once]), diameter=9, voxel_size=(3, 1, 1))
    fine = hr.objects(np.stack([1 - often, often]), diameter=9, voxel_size=(1, 1, 1))
    assert abs(int(coarse.max()) - int(fine.max())) <= 0.25 * fine.max()


def test_holes_reach_no_edge_of_the_image():
    proba = np.zeros((40, 40))
    proba[5:35, 5:35] = proba[:8, 30:] = 1
    proba[15:19, 15:19] = proba[:3, 34:37] = 0
    numbers = hr.objects(proba, diameter=8, fill_holes=40, min_dip=3)
    assert (numbers[15:19, 15:19] > 0).all()
    assert (numbers[0, 34:37] == 0).all()


def test_gaps_between_dense_objects_are_no_holes_of_one_large_object():
    rows, columns = np.mgrid[:200, :200]
    distance = np.hypot(rows % 25 - 12, columns % 25 - 12)
    for radius in (13, 14):  # they touch or overlap, so their gaps are enclosed, and small
        assert abs(hr.objects(np.clip(radius - distance, 0, 1)).max() - 64) <= 2
