"""Which images belong together: as the user says, or as they look."""

import os

import numpy as np
import pytest

from hedgerow import synthetic
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import subjects_of
from hedgerow.images.subjects import THUMB_SIDE, check_groups, grouped, picture, subject_names
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


@pytest.mark.parametrize("size", [(THUMB_SIDE, THUMB_SIDE), (7, 90), (33, 64), (1, 1), (200, 31)])
def test_pictures_have_mean_0_and_variance_1(size):
    image = np.random.default_rng(1).normal(3, 9, (2, *size)).astype(np.float32)
    small = picture(image)
    assert small.shape == (THUMB_SIDE * THUMB_SIDE,)
    assert abs(small.mean()) < 1e-5
    assert small.std() == pytest.approx(1 if size != (1, 1) else 0, abs=1e-5)
    np.testing.assert_array_equal(picture(np.full((1, *size), 5, np.float32)), np.zeros(THUMB_SIDE * THUMB_SIDE))


def test_pictures_are_means_of_squares():
    image = np.arange(64.0 * 96, dtype=np.float32).reshape(1, 64, 96)
    means = image.reshape(THUMB_SIDE, 2, THUMB_SIDE, 3).mean((1, 3)).ravel()
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


def by_name(*names):
    """The subjects that names tell, as lists of numbers, and the notes."""
    notes = []
    return subjects_of(subject_names(names, None, None, notes.append)), notes


@pytest.mark.parametrize(
    "names",
    [
        ["patient3_z011.png", "patient3_z012.png", "patient4_z011.png", "patient4_z012.png"],
        ["anna_z1.tif", "anna_z2.tif", "ben_z1.tif", "ben_z2.tif"],
        ["anna z=1 t=1.tif", "anna z=2 t=1.tif", "ben z=1 t=1.tif", "ben z=2 t=2.tif"],
        ["a/fish_t05.ome.tif", "a/fish_t06.ome.tif", "a/worm_t05.ome.tif", "a/worm_t06.ome.tif"],
        ["sub-01_left.png", "sub-01_right.png", "sub-02_left.png", "sub-02_right.png"],
        ["Slide7 tile1.png", "Slide7 tile2.png", "Slide8 tile1.png", "Slide8 tile2.png"],
        ["plate1_well_A03_s1.tif", "plate1_well_A03_s2.tif", "plate1_well_B03_s1.tif", "plate1_well_B03_s2.tif"],
        ["case_0012_slice_3", "case_0012_slice_4", "case_0013_slice_3", "case_0013_slice_4"],
    ],
)
def test_groups_that_names_tell(names):
    subjects, (note,) = by_name(*names)
    assert subjects == [[0, 1], [2, 3]]
    first, second = (name.rpartition("/")[2] for name in names[:2])
    assert "4 images belong together by their names, in 2 group(s)" in note
    assert first in note
    assert second in note
    assert "--groups none" in note


@pytest.mark.parametrize(
    "names",
    [
        [f"photo_{i:02}.png" for i in range(1, 17)],
        [f"image {i}" for i in range(16)],
        [f"IMG_20260503_1011{i:02}.jpg" for i in range(16)],
        [f"embryo_t{i:02}.tif" for i in range(8)],  # of one embryo: nothing could be held out
        [f"slice_{i}.png" for i in range(8)],
        [f"patient{i}.png" for i in range(8)],
        [f"sub-{i:02}_T1w.nii" for i in range(8)],
        [f"{kind}_{i}.png" for kind in ("control", "treated") for i in range(8)],
        [f"{kind}_{i}_{k}.png" for kind in ("control", "treated") for i in range(4) for k in range(4)],
        [f"day{k}_{i}.png" for k in range(3) for i in range(8)],
        ["street.png", "street2.png", "fast1z3a.png", "graz1.png"],
    ],
)
def test_names_that_tell_nothing(names):
    assert by_name(*names) == ([[i] for i in range(len(names))], [])


def test_names_with_several_numbers_of_four_subjects():
    names = [f"img{k}_crop{i}.png" for k in range(4) for i in range(3)]
    assert by_name(*names)[0] == [[3 * k, 3 * k + 1, 3 * k + 2] for k in range(4)]


def test_images_of_other_names_are_compared():
    names = ["patient1_a.png", "patient1_b.png", "patient2_a.png", "x.png", "y.png", "z.png"]
    first, second, third = independent(synthetic.facades, 3)
    subjects, notes = subjects_found([first, second, first, third, first, third], names)
    assert subjects == [[0, 1], [2, 4], [3, 5]]
    assert ["by their names" in note for note in notes] == [True, False]


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
        ("x" * 5000, ["do not match"]),  # no file can have such a name
        ("(" * 5000 + ")" * 5000, ["no regular expression"]),
        ("a{99999999999}", ["no regular expression"]),
    ],
)
def test_groups_that_cannot_be(groups, words):
    with pytest.raises((InputError, ConfigError)) as problem:
        subject_names(NAMES, None, groups, quiet)
    assert_one_sentence(problem, *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"anna_1,x", ["no group for", "anna_2"]),
        (b"a,b,c\n", ["no table"]),
        (b"", ["no table"]),
        (b"anna_1;x\nanna_2;x\n", ["no table", "a comma"]),
        (b"anna_1,x\nanna_1,y\n", ["2 groups for", "anna_1"]),
        (b"anna_1.tif,x\nanna_1,y\n", ["2 groups for", "anna_1"]),
        ("anna_1,x\n".encode("utf-16"), ["save it as UTF-8"]),
        ("anna_1,M\u00fcller\n".encode("latin-1"), ["save it as UTF-8"]),
        (b"a,b\n" * 300_000, ["more than 1,048,576 bytes"]),
        (b"a," + b"x" * 200_000, ["cannot read", "g.csv"]),
    ],
)
def test_files_of_groups_that_cannot_be(tmp_path, content, words):
    (tmp_path / "g.csv").write_bytes(content)
    with pytest.raises(InputError) as problem:
        subject_names(NAMES, None, tmp_path / "g.csv", quiet)
    assert_one_sentence(problem, *words)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize(
    "make", [getattr(os, "mkfifo", None), lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"]
)
def test_groups_are_not_read_from_what_never_ends(tmp_path, make):
    make(tmp_path / "g.csv")
    with pytest.raises(InputError) as problem:
        subject_names(NAMES, None, tmp_path / "g.csv", quiet)
    assert_one_sentence(problem, "g.csv", "it is a pipe or a device")


@pytest.mark.parametrize("groups", ["", 3, {"a"}, {"a": 1}, b"a"])
def test_groups_of_the_wrong_kind(groups):
    with pytest.raises(ConfigError) as problem:
        check_groups(groups)
    assert_one_sentence(problem, "groups")


def test_groups_may_be_the_column_of_a_table():
    pandas = pytest.importorskip("pandas")
    assert check_groups(pandas.Series(["a", "a", "b"], index=[5, 6, 7])) == ["a", "a", "b"]


def test_a_set_keeps_its_subjects():
    labels = [np.indices((8, 9))[0] % 2] * 4
    labelled = grouped(
        labelled_set([np.full((8, 9), i, np.uint8) for i in range(4)], labels), ["a", "b", "a", ""], quiet
    )
    assert labelled.subjects == [[0, 2], [1], [3]]
    assert [image.subject for image in labelled] == ["a", "b", "a", ""]
