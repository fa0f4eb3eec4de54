"""Pages, z planes and time points: what is read as channels, what is refused, what is said of it."""

import os

import numpy as np
import pytest
import tifffile
import zarr

from hedgerow.errors import ConfigError, InputError
from hedgerow.images.label_files import read_labels
from hedgerow.images.pages import page_numbers
from hedgerow.images.reading import read_image, read_input, what_was_read
from helpers.files import assert_same, random_array, read_channels, write
from helpers.refusals import assert_one_sentence

PAGES = random_array((5, 6, 8), "u2")
PLAIN = {"metadata": None}


def write_pages(path, *pages, options=PLAIN, **writer):
    """A TIFF of pages that are written one after the other; a page may come with options of its own."""
    with tifffile.TiffWriter(path, **writer) as tiff:
        for page in pages:
            page, own = page if isinstance(page, tuple) else (page, {})
            tiff.write(page, **({"photometric": "minisblack"} | options | own))
    return path


def channels(pages, numbers):
    """(H,W) or (H,W,C): pages (N,H,W) of these numbers."""
    found = pages[[number - 1 for number in numbers]]
    return found[0] if len(found) == 1 else np.moveaxis(found, 0, -1)


def refused(path, *words, pages=None, read=read_image):
    with pytest.raises(InputError) as problem:
        read(path, pages=pages)
    assert_one_sentence(problem, f"cannot read {path}: ", *words)
    assert "damaged" not in str(problem.value)


# What is asked for


@pytest.mark.parametrize(
    ("pages", "numbers"),
    [
        (None, None),
        ("all", ()),
        (" ALL ", ()),
        ("3", (3,)),
        ("1,3-5", (1, 3, 4, 5)),
        (" 5 , 1 - 2 ", (5, 1, 2)),
        (3, (3,)),
        ([2, 1], (2, 1)),
        ((4,), (4,)),
        (np.array([1, 2]), (1, 2)),
        (range(1, 4), (1, 2, 3)),
    ],
)
def test_numbers_of_pages(pages, numbers):
    assert page_numbers(pages) == numbers


@pytest.mark.parametrize(
    "pages",
    [
        *("", " ", "0", "0-2", "-1", "3-1", "1,,2", "1,", "a", "1;2", "1.5", "²", "1-9999999999", "1-1000001"),
        *("1,1", "1-3,2", 0, -1, True, 1.5, b"3", [], [0], [1, 1], [1.0], ["1"], [True], [None], {}, object()),
        *(10**20, [10**5000]),
    ],
)
def test_no_numbers_of_pages(tmp_path, pages):
    path = write_pages(tmp_path / "a.tif", *PAGES)
    for read in (read_image, read_labels, read_channels):
        with pytest.raises(ConfigError) as problem:
            read(path, pages=pages)
        assert_one_sentence(problem, "pages (--pages) is ")


# Pages without a word on what they are


def test_equal_pages_are_refused_until_it_is_said_what_they_are(tmp_path):
    one_by_one, at_once = tmp_path / "one_by_one.tif", tmp_path / "at_once.tif"
    written_by_tifffile = write_pages(tmp_path / "written.tif", *PAGES, options={})
    write_pages(one_by_one, *PAGES)
    write(at_once, PAGES, **PLAIN)
    for path in (one_by_one, at_once, written_by_tifffile):
        refused(
            path, "found 5 pages of the same size, and the file does not say what they are", "--pages all", "--pages 3"
        )
        for pages, numbers in (("all", range(1, 6)), ("3", [3]), ("1,3-5", [1, 3, 4, 5]), ([5, 2], [5, 2])):
            assert_same(read_image(path, pages), channels(PAGES, numbers))
        assert_same(read_channels(path, "2-3"), PAGES[1:3])
        assert_same(read_input(path, "planes", 4), PAGES[3:4])
        assert_same(read_labels(path, 2), PAGES[1])
    refused(write_pages(one_by_one, *PAGES[:2]), "2 pages", "--pages 2")


def test_pages_beyond_the_file_are_refused_with_their_number(tmp_path):
    several, single = write_pages(tmp_path / "several.tif", *PAGES), write_pages(tmp_path / "one.tif", PAGES[0])
    refused(several, "it has 5 pages", "there is no page 7", pages="1,7")
    refused(single, "it has one page", "no page 2", pages=2)
    for path in (single, write(tmp_path / "a.png", PAGES[0])):
        for pages in (None, "all", 1):
            assert_same(read_image(path, pages), PAGES[0])
    coloured = write(tmp_path / "b.png", random_array((5, 7, 3), "u1"))
    refused(coloured, "channels are not pages", pages="3")


def test_colour_pages_keep_their_channels(tmp_path):
    coloured = random_array((2, 6, 8, 3), "u1")
    path = write_pages(tmp_path / "a.tif", *coloured, options=PLAIN | {"photometric": "rgb"})
    refused(path, "found 2 pages")
    assert_same(read_image(path, 2), coloured[1])
    assert_same(read_image(path, "all"), np.concatenate(list(coloured), axis=2))
    mixed = write_pages(tmp_path / "mixed.tif", (coloured[0], {"photometric": "rgb"}), coloured[1, ..., 0])
    refused(mixed, "page 1: 6 x 8 x 3 uint8, page 2: 6 x 8 uint8")
    assert_same(read_image(mixed, "2,1"), np.concatenate([coloured[1, ..., :1], coloured[0]], axis=2))


def test_palettes_of_pages(tmp_path):
    indices, colours = random_array((2, 5, 7), "u1"), random_array((3, 256), "u2")
    path = write_pages(tmp_path / "a.tif", *indices, options=PLAIN | {"photometric": "palette", "colormap": colours})
    assert_same(read_image(path, 2), colours[:, indices[1]].transpose(1, 2, 0))
    assert_same(read_labels(path, 2), indices[1])


@pytest.mark.parametrize("options", [PLAIN, {}], ids=["plain", "tifffile"])
@pytest.mark.parametrize("small", [PAGES[0, :3, :4], PAGES[0, :4], PAGES[0, :, :2], PAGES[0].astype("u1")])
def test_no_page_is_lost_because_it_is_smaller_or_of_another_type(tmp_path, small, options):
    size = f"{' x '.join(map(str, small.shape))} {small.dtype}"
    for path in (
        write_pages(tmp_path / "later.tif", PAGES[0], small, options=options),
        write_pages(tmp_path / "first.tif", small, PAGES[0], options=options),
        write_pages(tmp_path / "many.tif", *[PAGES[0]] * 4, small, *[PAGES[0]] * 4, options=options),
    ):
        refused(path, "6 x 8 uint16", size, "--pages 1")
        refused(path, "differ in size or number type", size, pages="all")
    assert_same(read_image(tmp_path / "many.tif", 5), small)
    assert_same(read_image(tmp_path / "many.tif", "4,6"), channels(PAGES, [1, 1]))


def test_thumbnails_levels_and_masks_are_no_pages(tmp_path):
    reduced = (PAGES[0, ::2, ::2], {"subfiletype": 1})
    thumbnail = (PAGES[0, :2, :3], {"subfiletype": 1})
    mask = (PAGES[0] > 9, {"subfiletype": 4})
    for options in (PLAIN, {}):
        for others in ([reduced], [thumbnail], [reduced, thumbnail], [mask]):
            path = write_pages(tmp_path / "a.tif", PAGES[0], *others, options=options)
            assert_same(read_image(path), PAGES[0])
    inside = write_pages(tmp_path / "b.tif", (PAGES[0], {"subifds": 1}), PAGES[0, ::2, ::2])
    assert_same(read_image(inside), PAGES[0])
    pages = [page for one in PAGES for page in (one, reduced)]
    path = write_pages(tmp_path / "c.tif", *pages)
    refused(path, "found 5 pages")
    assert_same(read_image(path, 4), PAGES[3])


# Metadata


@pytest.mark.parametrize("storage", [{}, {"compression": "zlib"}, {"rowsperstrip": 2}, {"byteorder": ">"}], ids=str)
@pytest.mark.parametrize("kind", ["ome", "imagej", "shaped"])
@pytest.mark.parametrize("axes", ["ZYX", "TYX"])
def test_stacks_are_refused_by_name_and_read_by_number(tmp_path, axes, kind, storage):
    own = {} if kind == "shaped" else {kind: True}
    path = write(tmp_path / "a.tif", PAGES, metadata={"axes": axes}, **own, **storage)
    noun = {"Z": "z plane", "T": "time point"}[axes[0]]
    refused(path, f"5 {noun}s", axes, "--pages all", "--pages 3")
    for pages, numbers in (("all", range(1, 6)), ("3", [3]), ("5,1-2", [5, 1, 2])):
        assert_same(read_image(path, pages), channels(PAGES, numbers))
    assert what_was_read(path, pages=2) == f"{noun} 2 of 5"
    assert what_was_read(path, pages="all") == f"{noun}s 1-5 read as 5 channels"


@pytest.mark.parametrize("axes", ["TZCYX", "TCZYX", "CTZYX", "ZTCYX"])
@pytest.mark.parametrize("kind", ["ome", "imagej"])
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_channels_of_a_stack_stay_together(tmp_path, axes, kind, compression):
    axes = "TZCYX" if kind == "imagej" else axes
    lengths = {"T": 2, "Z": 3, "C": 4, "Y": 6, "X": 8}
    array = random_array([lengths[axis] for axis in axes], "u2")
    path = write(tmp_path / "a.tif", array, **{kind: True}, metadata={"axes": axes}, compression=compression)
    refused(path, "2 time points", "3 z planes", axes)
    stack = [axis for axis in axes if axis in "TZ"]
    by_page = np.moveaxis(array, [axes.index(axis) for axis in (*stack, "C")], (0, 1, 2)).reshape(6, 4, 6, 8)
    assert_same(read_channels(path, "all"), by_page.reshape(24, 6, 8))
    assert_same(read_channels(path, 5), by_page[4])
    assert_same(read_channels(path, "6,1"), by_page[[5, 0]].reshape(8, 6, 8))
    t, z = np.unravel_index(4, [lengths[axis] for axis in stack])
    place = f"{stack[0]} {t + 1} of {lengths[stack[0]]}, {stack[1]} {z + 1} of {lengths[stack[1]]}"
    assert what_was_read(path, pages=5) == f"4 channels; page 5 of 6 ({place})"


def test_metadata_that_says_channels_is_believed(tmp_path):
    for own in ({"ome": True}, {"imagej": True}, {}):
        path = write(tmp_path / "a.tif", PAGES, **own, metadata={"axes": "CYX"})
        for pages in (None, "all", 1):
            assert_same(read_image(path, pages), channels(PAGES, range(1, 6)))
        assert what_was_read(path) == "5 channels"
        refused(path, "it has one page", pages=3)


def test_imagej_pages_without_dimensions_are_ambiguous(tmp_path):
    path = write(tmp_path / "a.tif", PAGES, metadata=None, description="ImageJ=1.54f\nimages=5\n")
    refused(path, "5 pages of the same size")
    assert_same(read_image(path, "2"), PAGES[1])


def test_imagej_stacks_behind_one_page(tmp_path):
    """ImageJ writes stacks of more than 4 GB as one page, with the others behind it."""
    content = bytearray(write(tmp_path / "whole.tif", PAGES, imagej=True, metadata={"axes": "ZYX"}).read_bytes())
    with tifffile.TiffFile(tmp_path / "whole.tif") as tiff:
        first, second = tiff.pages[0].offset, tiff.pages[1].offset
    place = content.index(second.to_bytes(4, "big" if content[:2] == b"MM" else "little"), first)
    content[place : place + 4] = bytes(4)  # the first page is the last
    path = tmp_path / "a.tif"
    path.write_bytes(content)
    with tifffile.TiffFile(path) as tiff:
        assert len(tiff.pages) == 1
    refused(path, "5 z planes")
    assert_same(read_image(path, "2,5"), channels(PAGES, [2, 5]))
    assert_same(read_image(path, "all"), channels(PAGES, range(1, 6)))


def test_several_images_of_an_ome_file_are_pages(tmp_path):
    path = write_pages(tmp_path / "a.ome.tif", PAGES[0], PAGES[1], options={}, ome=True)
    refused(path, "found 2 pages")
    assert_same(read_image(path, 2), PAGES[1])
    path = write_pages(tmp_path / "b.ome.tif", PAGES, PAGES[0, :3], options={}, ome=True)
    refused(path, "page 1: 6 x 8 x 5 uint16, page 2: 3 x 8 uint16")
    assert_same(read_image(path, 1), channels(PAGES, range(1, 6)))
    stack = (PAGES, {"metadata": {"axes": "ZYX"}})
    path = write_pages(tmp_path / "c.ome.tif", stack, PAGES[0], options={}, ome=True)
    refused(path, "2 images", "ZYX", "one image per file")
    refused(path, "2 images", pages=2)


def test_ome_planes_that_are_missing_are_not_filled_with_zeros(tmp_path):
    path = write(tmp_path / "a.ome.tif", PAGES, ome=True, metadata={"axes": "CYX"})
    text = tifffile.tiffcomment(path)
    tifffile.tiffcomment(path, text.replace('SizeC="5"', 'SizeC="7"').encode())
    refused(path, "2 of its 7 planes are missing")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_named_by_ome_metadata_is_not_opened(tmp_path):
    path = write(tmp_path / "a.ome.tif", PAGES, ome=True, metadata={"axes": "CYX"})
    os.mkfifo(tmp_path / "b.ome.tif")
    text = tifffile.tiffcomment(path)
    other = '<TiffData IFD="0"><UUID FileName="b.ome.tif">urn:uuid:0</UUID></TiffData><TiffData'
    tifffile.tiffcomment(path, text.replace("<TiffData", other, 1).encode())
    with pytest.raises(InputError) as problem:
        read_image(path)
    assert_one_sentence(problem, tmp_path / "b.ome.tif", "pipe")


# Arrays


def test_arrays_without_names_are_read_as_channels_and_by_number(tmp_path):
    for path in (tmp_path / "a.npy", tmp_path / "a.tif", tmp_path / "a.zarr"):
        for array in (PAGES, np.moveaxis(PAGES, 0, -1)):
            if path.suffix == ".zarr":
                zarr.create_array(path, data=np.ascontiguousarray(array), overwrite=True)
            else:
                write(path, array)
            for pages, numbers in ((None, range(1, 6)), ("all", range(1, 6)), ("2", [2]), ([4, 1], [4, 1])):
                assert_same(read_image(path, pages), channels(PAGES, numbers))
            assert what_was_read(path) == f"an array of shape {array.shape} read as 5 channels of 6 x 8"
            assert what_was_read(path, pages="1,3") == "pages 1, 3 of 5 read as 2 channels"
            refused(path, "it has 5 pages", pages=6)


def test_own_channels_of_an_array_are_counted_along_its_first_axis(tmp_path):
    own = random_array((9, 4, 3), "f4")
    path = write(tmp_path / "a.npy", own)
    assert_same(read_channels(path), own)
    assert_same(read_channels(path, "9,2"), own[[8, 1]])
    assert what_was_read(path, "planes") == "an array of shape (9, 4, 3) read as 9 channels of 4 x 3"


def test_tiffs_of_more_axes_without_names(tmp_path):
    array = random_array((2, 3, 5, 7), "u1")
    path = write(tmp_path / "a.tif", array)
    refused(path, "6 pages", "(2, 3, 5, 7)")
    assert_same(read_channels(path, 5), array[1, 1][None])
    coloured = write(tmp_path / "b.tif", random_array((2, 5, 7, 3), "u1"), photometric="rgb")
    refused(coloured, "2 pages")


@pytest.mark.parametrize("axes", ["zyx", "tczyx", "czyx"])
def test_stacks_of_a_zarr(tmp_path, axes):
    lengths = {"t": 2, "c": 4, "z": 3, "y": 6, "x": 8}
    array = random_array([lengths[axis] for axis in axes], "u2")
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("0", data=array, chunks=(1,) * (array.ndim - 2) + (4, 4))
    group.attrs["ome"] = {"multiscales": [{"axes": [{"name": axis} for axis in axes], "datasets": [{"path": "0"}]}]}
    path = tmp_path / "a.zarr"
    refused(path, "3 z planes", axes.upper(), "--pages all")
    stack = [axis for axis in axes if axis in "tz"]
    moved = np.moveaxis(array, [axes.index(axis) for axis in stack], range(len(stack)))
    by_page = moved.reshape(-1, *((4,) if "c" in axes else (1,)), 6, 8)
    assert_same(read_channels(path, "all"), by_page.reshape(-1, 6, 8))
    assert_same(read_channels(path, "3,1"), by_page[[2, 0]].reshape(-1, 6, 8))


# Labels, and what is said


def test_labels_of_several_pages_follow_the_same_rule(tmp_path):
    labels = PAGES % 3
    for options in (PLAIN, {"ome": True, "metadata": {"axes": "ZYX"}}):
        path = write(tmp_path / "a.tif", labels, **options)
        refused(path, "5 ", "a separate file", "pages=3", read=read_labels)
        assert_same(read_labels(path, 3), labels[2])
        with pytest.raises(InputError, match="5 channels of uint16"):
            read_labels(path, "all")


@pytest.mark.parametrize("ending", [".png", ".jpg", ".tif", ".npy"])
def test_nothing_is_said_of_a_plain_picture(tmp_path, ending):
    assert what_was_read(write(tmp_path / f"grey{ending}", random_array((6, 8), "u1"))) == ""
    if ending != ".npy":
        options = {"photometric": "rgb"} if ending == ".tif" else {}
        assert what_was_read(write(tmp_path / f"rgb{ending}", random_array((6, 8, 3), "u1"), **options)) == ""


def test_what_was_read_in_words(tmp_path):
    path = write_pages(tmp_path / "a.tif", *PAGES)
    assert what_was_read(path, pages="all") == "pages 1-5 read as 5 channels"
    assert what_was_read(path, pages="3") == "page 3 of 5"
    assert what_was_read(path, pages="1,3-5") == "pages 1, 3-5 of 5 read as 4 channels"
    stack = write(tmp_path / "b.tif", random_array((10, 3, 6, 8), "u1"), ome=True, metadata={"axes": "ZCYX"})
    assert what_was_read(stack, pages=2) == "3 channels; z plane 2 of 10"
    with pytest.raises(InputError, match="does not say what they are"):
        what_was_read(path)


def test_what_was_read_reads_no_pixels(tmp_path, monkeypatch):
    path = write_pages(tmp_path / "a.tif", *PAGES)
    monkeypatch.setattr(tifffile.TiffPage, "asarray", None)
    assert what_was_read(path, pages="all") == "pages 1-5 read as 5 channels"


@pytest.mark.parametrize("big", [False, True])
def test_pages_that_lead_back_to_each_other_are_refused(tmp_path, big):
    path = tmp_path / "pages.tif"
    with tifffile.TiffWriter(path, bigtiff=big) as writer:
        for _ in range(3):
            writer.write(np.zeros((5, 6), np.uint8), metadata=None)
    with tifffile.TiffFile(path) as tiff:
        pages = [page.offset for page in tiff.pages]
        size = tiff.tiff.offsetsize
    data = bytearray(path.read_bytes())
    for place in range(len(data) - size):  # wherever the second page leads to the third, it now leads to the first
        if int.from_bytes(data[place : place + size], "little") == pages[2]:
            data[place : place + size] = pages[0].to_bytes(size, "little")
    path.write_bytes(data)
    with pytest.raises(InputError) as problem:
        read_image(path, pages="all")
    assert_one_sentence(problem, "lead back")
