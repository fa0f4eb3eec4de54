"""The drawn data sets: reproducible, well formed, and hard in the way they are meant to be."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import ndimage

from hedgerow.errors import ConfigError, InputError
from hedgerow.images.label_files import read_labels
from hedgerow.images.legend import read_legend
from hedgerow.images.reading import read_image
from hedgerow.synthetic import (
    BODY_PART_NAMES,
    EMBRYO_NAMES,
    FACADE_NAMES,
    SOMITE_NAMES,
    bodies,
    embryo,
    facades,
    paint,
    somites,
    write_sample,
)
from hedgerow.synthetic.people import AHEAD, BACKGROUND_ID, LEFT, UP, RoundCone, _meet, _turn
from helpers.files import listing

DRAWINGS = [somites, bodies]
N_SOMITES = 21
N_PARTS = 19


@pytest.fixture(scope="module")
def embryos() -> tuple[list[np.ndarray], list[np.ndarray]]:
    return somites(8, seed=1)


@pytest.fixture(scope="module")
def people() -> tuple[list[np.ndarray], list[np.ndarray]]:
    return bodies(8, seed=1)


def centroid(mask: np.ndarray) -> np.ndarray:
    """Mean row and column of the true pixels, (2,)."""
    return np.argwhere(mask).mean(axis=0)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_set_is_the_beginning_of_any_longer_one(draw: Callable) -> None:
    short, long = draw(2, (48, 64), seed=5), draw(4, (48, 64), seed=5)
    for few, many in zip(short, long, strict=True):
        assert len(few) == 2
        assert len(many) == 4
        for a, b in zip(few, many[:2], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_seeds_and_images_of_a_set_differ(draw: Callable) -> None:
    images, labels = draw(2, (48, 64), seed=0)
    other_images, other_labels = draw(1, (48, 64), seed=1)
    for first, second in ((images[0], images[1]), (images[0], other_images[0])):
        assert (first != second).any()
    for first, second in ((labels[0], labels[1]), (labels[0], other_labels[0])):
        assert (first != second).any()


@pytest.mark.parametrize("size", [(16, 16), (17, 40), (300, 200), (16, 120), (120, 16)])
@pytest.mark.parametrize(
    ("draw", "pixel_type", "n_classes"),
    [(somites, np.uint8, N_SOMITES + 1), (bodies, np.uint16, N_PARTS + 1)],
)
def test_any_size(draw: Callable, pixel_type: type, n_classes: int, size: tuple[int, int]) -> None:
    images, labels = draw(2, size, seed=3)
    for image, label in zip(images, labels, strict=True):
        assert image.shape == label.shape == size
        assert image.dtype == pixel_type
        assert label.dtype == np.uint8
        assert label.max() < n_classes
        assert len(np.unique(label)) > 2


def test_sizes_by_default() -> None:
    assert somites(1)[0][0].shape == (256, 256)
    assert bodies(1)[0][0].shape == (240, 320)


@pytest.mark.parametrize("draw", DRAWINGS)
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"n_images": 0}, "n_images is 0"),
        ({"n_images": 1.5}, "n_images is 1.5"),
        ({"size": (15, 64)}, "size is"),
        ({"size": (64,)}, "size is"),
        ({"size": 64}, "size is 64"),
        ({"size": (64.0, 64)}, "size is"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_settings_outside_their_limits_are_refused(draw: Callable, settings: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        draw(**settings)


def test_class_names() -> None:
    assert len(SOMITE_NAMES) == N_SOMITES + 1
    assert SOMITE_NAMES[0] == "background"
    assert len(BODY_PART_NAMES) == N_PARTS + 1
    expected = {0: "head", 1: "torso0L", 6: "torso2R", 7: "leg0L", 12: "leg2R", 13: "arm0L", 18: "arm2R"}
    assert {number: BODY_PART_NAMES[number] for number in expected} == expected
    assert BODY_PART_NAMES[BACKGROUND_ID] == "background"


def test_most_embryos_show_every_somite(embryos: tuple) -> None:
    shown = np.array([[(label == k).any() for k in range(1, N_SOMITES + 1)] for label in embryos[1]])
    assert (shown.sum(axis=0) > len(shown) / 2).all()
    assert shown.mean() > 0.9


def test_somites_follow_each_other_along_the_body(embryos: tuple) -> None:
    nearer = []
    for label in embryos[1]:
        at = {k: centroid(label == k) for k in range(1, N_SOMITES + 1) if (label == k).sum() > 20}
        for k in at:
            if k + 1 in at and k + 4 in at:
                nearer.append(np.linalg.norm(at[k] - at[k + 1]) < np.linalg.norm(at[k] - at[k + 4]))
    assert len(nearer) > 100
    assert np.mean(nearer) > 0.98


def test_grey_values_do_not_name_the_somite(embryos: tuple) -> None:
    """Mean grey by class, averaged over images, varies less than pixels do within one somite."""
    means, spreads = [], []
    for image, label in zip(*embryos, strict=True):
        inside = image[label > 0].astype(float)
        scaled = (image - inside.mean()) / inside.std()
        regions = [scaled[label == k] for k in range(1, N_SOMITES + 1)]
        means.append([region.mean() if region.size > 20 else np.nan for region in regions])
        spreads += [region.std() for region in regions if region.size > 20]
    by_class = np.nanmean(means, axis=0)
    assert np.nanstd(by_class) < 0.5 * np.mean(spreads)


def test_somites_are_chevrons_that_point_to_the_head(embryos: tuple) -> None:
    """Near the midline a somite reaches further towards the head than at its flanks."""
    pointing = []
    for label in embryos[1]:
        for k in range(4, 16):
            place = np.argwhere(label == k)
            if len(place) < 40 or not ((label == k - 3).any() and (label == k + 3).any()):
                continue
            tailward = centroid(label == k + 3) - centroid(label == k - 3)
            tailward /= np.linalg.norm(tailward)
            local = place - place.mean(axis=0)
            along, across = local @ tailward, np.abs(local @ [tailward[1], -tailward[0]])
            middle = across < np.quantile(across, 0.3)
            flank = across > np.quantile(across, 0.7)
            pointing.append(along[middle].mean() < along[flank].mean())
    assert np.mean(pointing) > 0.95


def test_every_body_part_is_seen(people: tuple) -> None:
    seen = np.array([[(label == k).any() for k in range(N_PARTS)] for label in people[1]])
    assert (seen.sum(axis=0) > len(seen) / 2).all()


def test_depth_is_that_of_a_person_in_a_room(people: tuple) -> None:
    for image, label in zip(*people, strict=True):
        body = label != BACKGROUND_ID
        measured = image[image > 0]
        assert measured.min() > 800
        assert measured.max() < 6000
        assert np.ptp(measured.astype(int)) < 2000
        assert 0.02 < body.mean() < 0.4
        assert (image[~body] == 0).all()
        assert 0 < (image[body] == 0).mean() < 0.15


def test_depth_noise_grows_with_distance() -> None:
    """Sensor noise is left over when neighbouring pixels, which see nearly the same surface, are compared."""
    distances, noises = [], []
    for image, label in zip(*bodies(12, seed=2), strict=True):
        torso = (label >= 1) & (label <= 6) & (image > 0)
        pairs = torso[:, 1:] & torso[:, :-1]
        difference = np.diff(image.astype(float), axis=1)[pairs]
        distances.append(np.median(image[torso]))
        noises.append(np.median(np.abs(difference)))
    assert np.corrcoef(np.square(distances), noises)[0, 1] > 0.7


def test_left_is_the_persons_own() -> None:
    """Facing the camera, the person's left is at the right of the image."""
    right_of = []
    for label in bodies(16, seed=4)[1]:
        left, right = np.isin(label, (1, 3, 5)), np.isin(label, (2, 4, 6))
        right_of.append(centroid(left)[1] > centroid(right)[1])
    assert np.mean(right_of) > 0.9


def test_turns_follow_the_right_hand() -> None:
    np.testing.assert_allclose(_turn(LEFT, 90) @ UP, AHEAD, atol=1e-12)
    np.testing.assert_allclose(_turn(UP, 90) @ AHEAD, LEFT, atol=1e-12)
    np.testing.assert_allclose(_turn(AHEAD, 90) @ LEFT, UP, atol=1e-12)


def test_solids_are_cast_where_they_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for each solid in the whole image finds no more of it than in its own rectangle."""
    _, quick = bodies(6, (60, 80), seed=6)
    whole = lambda solid, focal, height, width: (slice(height), slice(width))  # noqa: E731
    monkeypatch.setattr("hedgerow.synthetic.people._window", whole)
    _, thorough = bodies(6, (60, 80), seed=6)
    np.testing.assert_array_equal(quick, thorough)


def swept_distance(solid: RoundCone, points: np.ndarray) -> np.ndarray:
    """How far points (N, 3) are outside the solid, by brute force over spheres along its axis, (N,)."""
    stretch = np.eye(3) + (1 / solid.flatness - 1) * np.outer(solid.flat_axis, solid.flat_axis)
    along = np.linspace(0, 1, 401)[:, None]
    centres = (solid.start + along * (solid.end - solid.start)) @ stretch
    radii = solid.start_radius + along[:, 0] * (solid.end_radius - solid.start_radius)
    return np.min(np.linalg.norm((points @ stretch)[:, None] - centres, axis=2) - radii, axis=1)


@pytest.mark.parametrize("flatness", [1.0, 0.6])
@pytest.mark.parametrize("radii", [(0.2, 0.2), (0.3, 0.1), (0.1, 0.25)])
@pytest.mark.parametrize("end", [(0.5, 0.3, -2.2), (0.0, 0.1, -2.6), (-0.1, 0.0, -1.4)])
def test_rays_stop_at_the_surface(end: tuple[float, ...], radii: tuple[float, float], flatness: float) -> None:
    """Where a ray stops, a sphere swept from one end to the other begins; before, there is nothing."""
    axis = np.array([0.6, 0.0, 0.8])
    solid = RoundCone(0, np.array([0.0, 0.0, -2.0]), np.array(end), *radii, axis, flatness)
    side = np.linspace(-0.3, 0.3, 11)
    rays = np.stack(np.broadcast_arrays(side[None, :], side[:, None], -1.0), axis=-1).reshape(-1, 3)
    depth = _meet(solid, rays)
    hit = np.isfinite(depth)
    assert 0 < hit.sum() < len(depth)
    assert np.abs(swept_distance(solid, rays[hit] * depth[hit][:, None])).max() < 1e-5
    fractions = np.linspace(0.3, 0.999, 12)
    for fraction in fractions:
        before = rays * (np.where(hit, depth, 3.5) * fraction)[:, None]
        assert swept_distance(solid, before).min() > 0


# House fronts and strokes


def test_house_fronts_have_all_their_classes_and_a_longer_set_begins_with_the_shorter():
    images, labels = facades(n_images=3, size=(120, 160), seed=4)
    assert {image.shape for image in images} == {(120, 160, 3)}
    assert {image.dtype for image in images} == {np.dtype(np.uint8)}
    assert set(np.unique(labels).tolist()) == set(range(len(FACADE_NAMES)))
    again, _ = facades(n_images=2, size=(120, 160), seed=4)
    np.testing.assert_array_equal(again, images[:2])


def test_strokes_are_thin_and_right_and_reach_every_class():
    _, (labels,) = facades(n_images=1, seed=2)
    painted = paint(labels, 0.01, seed=3)
    where = painted != 255
    assert 0.01 <= where.mean() < 0.015
    np.testing.assert_array_equal(painted[where], labels[where])
    assert set(np.unique(painted)) == {*np.unique(labels), 255}
    assert paint(labels, 0.01, seed=3).tobytes() == painted.tobytes()
    assert paint(labels, 0.01, seed=4).tobytes() != painted.tobytes()
    with pytest.raises(ConfigError, match="part"):
        paint(labels, 0)


def test_a_sample_of_strokes_has_names_colours_and_the_truth(tmp_path):
    write_sample("facades", tmp_path, 2, 0, strokes=True)
    assert sorted(listing(tmp_path)) == [
        *(f"images/facades_00{i}.png" for i in (0, 1)),
        *("labels/classes.toml", "labels/facades_000.png", "labels/facades_001.png"),
        *("truth/classes.toml", "truth/facades_000.png", "truth/facades_001.png"),
    ]
    images, labels = facades(n_images=2, seed=0)
    np.testing.assert_array_equal(read_image(tmp_path / "images" / "facades_001.png"), images[1])
    np.testing.assert_array_equal(read_labels(tmp_path / "truth" / "facades_001.png"), labels[1])
    np.testing.assert_array_equal(read_labels(tmp_path / "labels" / "facades_001.png"), paint(labels[1], seed=1))
    legend = read_legend(tmp_path / "labels" / "classes.toml")
    assert legend.names == dict(enumerate(FACADE_NAMES))
    red, green, blue = legend.colours[FACADE_NAMES.index("vegetation")]
    assert green > max(red, blue)
    assert len(set(legend.colours.values())) == len(FACADE_NAMES)


def test_embryos_of_less_variety_lie_more_alike():
    def spread(variety):
        """How much the labels of a pixel differ between embryos."""
        _, labels = somites(8, (64, 80), variety=variety)
        return np.mean([np.mean(a != b) for a in labels for b in labels])

    assert spread(0) < 0.01 < spread(0.5) < spread(1)
    full, same = somites(2, (64, 80)), somites(2, (64, 80), variety=1)
    np.testing.assert_array_equal(full, same)
    alike = somites(2, (64, 80), variety=0)[0]
    assert (alike[0] != alike[1]).mean() > 0.5, "their tissue and the photographs differ"


@pytest.mark.parametrize("variety", [-0.1, 1.5, float("nan")])
def test_a_variety_that_cannot_be_is_refused(variety):
    with pytest.raises(InputError, match="variety"):
        somites(1, variety=variety)


# Embryos in volumes


@pytest.fixture(scope="module")
def embryo_volumes() -> tuple[list[np.ndarray], list[np.ndarray]]:
    return embryo(4, seed=1)


@pytest.mark.parametrize("size", [(1, 16, 16), (2, 33, 47), (40, 20, 90)])
def test_volumes_of_any_size_with_labels_of_the_same(size):
    volumes, labels = embryo(2, size, seed=3, anisotropy=2.5)
    for volume, label in zip(volumes, labels, strict=True):
        assert volume.shape == label.shape == size
        assert volume.dtype == label.dtype == np.uint8
        assert label.max() < len(EMBRYO_NAMES)
        assert len(np.unique(label)) > 1


def test_a_longer_set_of_volumes_begins_with_the_shorter_and_seeds_differ():
    short, long, other = (embryo(n, (6, 32, 40), seed) for n, seed in ((1, 5), (2, 5), (1, 6)))
    for few, many, others in zip(short, long, other, strict=True):
        np.testing.assert_array_equal(few[0], many[0])
        assert (many[0] != many[1]).any()
        assert (few[0] != others[0]).any()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"size": (64, 64)}, r"\(planes, height, width\)"),
        ({"size": (0, 64, 64)}, "size is"),
        ({"size": (4, 15, 64)}, "size is"),
        ({"anisotropy": 0.5}, "anisotropy is 0.5"),
        ({"anisotropy": float("nan")}, "anisotropy is nan"),
    ],
)
def test_volumes_that_cannot_be_are_refused(settings, named):
    with pytest.raises(ConfigError, match=named):
        embryo(1, **settings)


def test_every_class_of_an_embryo_is_in_every_volume(embryo_volumes):
    assert EMBRYO_NAMES[:2] == SOMITE_NAMES[:2]
    for label in embryo_volumes[1]:
        assert (np.bincount(label.ravel(), minlength=len(EMBRYO_NAMES)) > 100).all()


def test_the_somites_of_a_volume_follow_each_other_and_cross_planes(embryo_volumes):
    for label in embryo_volumes[1]:
        at = {k: np.argwhere(label == k).mean(axis=0) * (3, 1, 1) for k in range(1, 9)}
        for k in range(1, 6):
            assert np.linalg.norm(at[k] - at[k + 1]) < np.linalg.norm(at[k] - at[k + 3])
        assert all(len(np.unique(np.nonzero(label == k)[0])) >= 3 for k in at)


def test_the_notochord_lies_between_the_somites(embryo_volumes):
    """Few of its voxels touch the background."""
    for label in embryo_volumes[1]:
        near = ndimage.binary_dilation(label == 0, ndimage.generate_binary_structure(3, 1), iterations=1)
        assert near[label == 9].mean() < 0.2


def best_threshold_dice(volume, mask):
    """Dice of the interval of grey values that fits a class best."""
    inside, everywhere = np.bincount(volume[mask], minlength=256), np.bincount(volume.ravel(), minlength=256)
    hits, taken = (np.concatenate([[0], np.cumsum(counts)]) for counts in (inside, everywhere))
    pairs = hits[None, :] - hits[:, None], taken[None, :] - taken[:, None]
    return float((2 * pairs[0] / np.maximum(pairs[1] + mask.sum(), 1)).max())


def test_no_interval_of_grey_values_is_a_class(embryo_volumes):
    for volume, label in zip(*embryo_volumes, strict=True):
        for k in range(1, len(EMBRYO_NAMES)):
            assert best_threshold_dice(volume, label == k) < 0.65, EMBRYO_NAMES[k]
        assert best_threshold_dice(volume, label > 0) < 0.9, "the yolk is as bright as the body"


def test_deeper_planes_of_a_volume_are_darker():
    upper, lower = [], []
    for volume, label in zip(*embryo(8, (32, 64, 64), seed=2), strict=True):
        for half, values in ((slice(0, 16), upper), (slice(16, 32), lower)):
            inside = volume[half][label[half] > 0]
            if inside.size > 500:
                values.append(inside.mean())
    assert np.mean(lower) < np.mean(upper)


def test_a_sample_of_volumes_is_written_as_stacks_with_their_voxel_size(tmp_path):
    tifffile = pytest.importorskip("tifffile")
    write_sample("embryo", tmp_path, 1, 2, strokes=True)
    volumes, labels = embryo(1, seed=2)
    for folder, expected in (("images", volumes[0]), ("truth", labels[0]), ("labels", paint(labels[0], seed=2))):
        with tifffile.TiffFile(tmp_path / folder / "embryo_000.tif") as tiff:
            assert tiff.series[0].axes == "ZYX"
            assert tiff.imagej_metadata["spacing"] == 3
            np.testing.assert_array_equal(tiff.asarray(), expected)
    assert read_legend(tmp_path / "labels" / "classes.toml").names == dict(enumerate(EMBRYO_NAMES))


def test_of_a_volume_some_planes_are_painted():
    _, (labels,) = embryo(1, (10, 64, 64), seed=1)
    painted = paint(labels, 0.02, seed=1)
    assert np.flatnonzero((painted != 255).any(axis=(1, 2))).tolist() == [2, 6]
    where = painted != 255
    np.testing.assert_array_equal(painted[where], labels[where])
    assert (paint(labels[:1]) != 255).any(), "a volume of one plane is painted, too"
