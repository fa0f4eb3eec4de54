"""Which images belong together: as the user says, or as they look."""

import numpy as np
import pytest

from hedgerow import synthetic
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import subjects_of
from hedgerow.images.subjects import SIDE, check_groups, grouped, picture, subject_names
from hedgerow.progress import quiet
from helpers.refusals import assert_one_sentence

NAMES = ["scans/anna_1.tif", "scans/anna_2.tif", "scans/ben_1.tif", "scans/ben_2.tif"]


def subjects_found(images, names=None):
    """The subjects that are found in images (H,W), as lists of their numbers, and the notes."""
    notes = []
    names = names or [f"image {i}" for i in range(len(images))]
    return subjects_of(subject_names(names, [image[None] for image in images], None, notes.append)), notes


def stack_of_slices(seed, n=12, size=(50, 35)):
    """Neighbouring slices of a smooth volume with noise."""
    from scipy import ndimage

    rng = np.random.default_rng(seed)
    volume = ndimage.gaussian_filter(rng.standard_normal((n, *size)), (3, 5, 5))
    return list((volume / volume.std() + 0.2 * rng.standard_normal(volume.shape)).astype(np.float32))


def independent(kind, n=24):
    return [
        np.asarray(image, np.float32).reshape(*image.shape[:2], -1).mean(2) for image in kind(n_images=n, seed=3)[0]
    ]


@pytest.mark.parametrize("n_stacks", [1, 2, 4])
def test_slices_of_a_stack_belong_together(n_stacks):
    stacks = [stack_of_slices(seed) for seed in range(n_stacks)]
    subjects, (note,) = subjects_found([image for stack in stacks for image in stack])
    assert subjects == [list(range(12 * k, 12 * k + 12)) for k in range(n_stacks)]
    assert f"{12 * n_stacks} images look alike, in {n_stacks} group(s), e.g. image 0 and image 11" in note
    assert "--groups none" in note


@pytest.mark.parametrize("kind", [synthetic.somites, synthetic.bodies, synthetic.facades])
def test_independent_images_of_one_kind_do_not(kind):
    images = independent(kind)
    assert subjects_found(images) == ([[i] for i in range(len(images))], [])


def test_the_same_image_twice_belongs_together_also_among_few():
    first, second = independent(synthetic.facades, 2)
    noise = np.random.default_rng(0).normal(0, 5, first.shape).astype(np.float32)
    assert subjects_found([first, second])[0] == [[0], [1]]
    assert subjects_found([first, second, 2 * first + noise])[0] == [[0, 2], [1]]
    assert subjects_found([first])[0] == [[0]]


@pytest.mark.parametrize("size", [(SIDE, SIDE), (7, 90), (33, 64), (1, 1), (200, 31)])
def test_pictures_have_mean_0_and_variance_1(size):
    image = np.random.default_rng(1).normal(3, 9, (2, *size)).astype(np.float32)
    small = picture(image)
    assert small.shape == (SIDE * SIDE,)
    assert abs(small.mean()) < 1e-5
    assert small.std() == pytest.approx(1 if size != (1, 1) else 0, abs=1e-5)
    np.testing.assert_array_equal(picture(np.full((1, *size), 5, np.float32)), np.zeros(SIDE * SIDE))


def test_pictures_are_means_of_squares():
    image = np.arange(64.0 * 96, dtype=np.float32).reshape(1, 64, 96)
    means = image.reshape(SIDE, 2, SIDE, 3).mean((1, 3)).ravel()
    np.testing.assert_allclose(picture(image), (means - means.mean()) / means.std(), rtol=1e-5)


@pytest.mark.parametrize("groups", ["^[^_]+", r"(\w+)_\d", ["a", "a", "b", "b"], np.array([1, 1, 2, 2])])
def test_groups_of_a_pattern_or_a_list(groups):
    names = subject_names(NAMES, None, check_groups(groups), quiet)
    assert subjects_of(names) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    "lines",
    [
        "scans/anna_1.tif,x\nanna_2,x\nben_1.tif,y\nben_2,y\n",
        "\ufeffimage,group\nanna_1, x\nanna_2,x\n\nben_1,y\nben_2,y",
    ],
)
def test_groups_of_a_file(tmp_path, lines):
    (tmp_path / "groups.csv").write_text(lines, encoding="utf-8")
    for path in (tmp_path / "groups.csv", str(tmp_path / "groups.csv")):
        assert subjects_of(subject_names(NAMES, None, path, quiet)) == [[0, 1], [2, 3]]


def test_none_means_that_each_image_is_on_its_own():
    images = stack_of_slices(0)
    names = subject_names([str(i) for i in range(12)], [image[None] for image in images], "none", quiet)
    assert len(subjects_of(names)) == 12
    assert subjects_of(subject_names(NAMES, None, None, quiet)) == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("(", ["no regular expression"]),
        ("carl", ["do not match 'anna_1'"]),
        (["a"], ["1 group(s) for 4 image(s)"]),
        ("absent.csv", ["cannot read absent.csv"]),
    ],
)
def test_groups_that_cannot_be(groups, words):
    with pytest.raises((InputError, ConfigError)) as problem:
        subject_names(NAMES, None, groups, quiet)
    assert_one_sentence(problem, *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [("anna_1,x", ["no group for", "anna_2"]), ("a,b,c\n", ["no table"]), ("", ["no table"])],
)
def test_files_of_groups_that_cannot_be(tmp_path, content, words):
    (tmp_path / "g.csv").write_text(content)
    with pytest.raises(InputError) as problem:
        subject_names(NAMES, None, tmp_path / "g.csv", quiet)
    assert_one_sentence(problem, *words)


@pytest.mark.parametrize("groups", ["", 3, {"a"}])
def test_groups_of_the_wrong_kind(groups):
    with pytest.raises(ConfigError) as problem:
        check_groups(groups)
    assert_one_sentence(problem, "groups")


def test_a_set_keeps_its_subjects():
    labels = [np.indices((8, 9))[0] % 2] * 4
    labelled = grouped(
        labelled_set([np.full((8, 9), i, np.uint8) for i in range(4)], labels), ["a", "b", "a", ""], quiet
    )
    assert labelled.subjects == [[0, 2], [1], [3]]
    assert [image.subject for image in labelled] == ["a", "b", "a", ""]
