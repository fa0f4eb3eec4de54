"""TIFF metadata that declare more than the file holds: refused before lists are made of it."""

import struct

import numpy as np
import pytest
import tifffile

from hedgerow.errors import InputError
from hedgerow.images.reading import open_image, read_image, what_was_read
from hedgerow.images.tiff_metadata import MOST_IMAGES, MOST_MARKS, MOST_PLANES, MOST_TEXT
from helpers.refusals import assert_one_sentence, assert_refused_cheaply

BIG = 10**8
PLANES = np.arange(2 * 8 * 9, dtype=np.uint8).reshape(2, 8, 9)
READS = (read_image, what_was_read, open_image)


def ome(path, change, planes=PLANES):
    """An OME-TIFF of two planes whose metadata were changed."""
    tifffile.imwrite(path, planes, ome=True, metadata={"axes": "CYX"}, photometric="minisblack")
    tifffile.tiffcomment(path, change(tifffile.tiffcomment(path)).encode())
    return path


def plain(path, description, **options):
    tifffile.imwrite(path, PLANES, metadata=None, description=description, photometric="minisblack", **options)
    return path


def refused(path, *words):
    for read in READS:
        assert_refused_cheaply(read, path, 20e6, f"cannot read {path}: ", *words)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('SizeC="2"', f'SizeC="{BIG}"', "99999998 of its 100000000 planes are missing"),
        ('SizeT="1"', f'SizeT="{BIG}"', "199999998 of its 200000000 planes are missing"),
        ('SizeX="9"', f'SizeX="{BIG}"', "declare 22,222,222 planes, expected at most 1,000,000"),
        ('PlaneCount="2"', f'PlaneCount="{BIG}"', "declare 100,000,000 planes"),
        ("<TiffData ", '<TiffData PlaneCount="50000"/>' * 1000 + "<TiffData ", "declare 50,000,002 planes"),
        ('SizeC="2"', 'SizeC="-2"', "its OME metadata are damaged (a count is -2)"),
        ('SizeC="2"', 'SizeC="0"', "its OME metadata are damaged (the length of an axis is 0)"),
        ('SizeC="2"', f'SizeC="{"9" * 5000}"', "its OME metadata are damaged (a count is 999"),
        ("</OME>", "<a>" * 10**5 + "</a>" * 10**5 + "</OME>", "more than 100 nested elements"),
        ("</OME>", "</b></OME>", "its OME metadata are damaged (mismatched tag"),
    ],
    ids=["channels", "times", "columns", "count", "runs", "negative", "zero", "digits", "deep", "broken"],
)
def test_ome_metadata_that_declare_too_much(tmp_path, before, after, words):
    refused(ome(tmp_path / "a.ome.tif", lambda text: text.replace(before, after)), words)


def test_planes_said_to_be_in_other_files_are_limited_too(tmp_path):
    def change(text):
        parts = "".join(
            f'<TiffData FirstC="{i}" IFD="0" PlaneCount="1"><UUID FileName="{i}.tif">urn:uuid:{i}</UUID></TiffData>'
            for i in range(3)
        )
        return text.replace('SizeC="2"', f'SizeC="{BIG}"').replace("<TiffData ", f"{parts}<TiffData ", 1)

    refused(ome(tmp_path / "a.ome.tif", change), "declare 100,000,000 planes")


def test_entities_are_not_expanded(tmp_path):
    """Ten of them, each ten of the last one, are ten thousand million letters."""
    entities = '<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9)
    )

    def change(text):
        return text.replace("<OME", f"<!DOCTYPE x [{entities}]><OME", 1).replace("</OME>", "<x>&j;</x></OME>")

    refused(ome(tmp_path / "a.ome.tif", change), "its OME metadata define entities")


def listing_planes(n, *names):
    """A change of OME metadata: so many planes are listed, each of them the first; names: of files that hold others."""
    files = "".join(f'<TiffData IFD="0"><UUID FileName="{name}">urn:uuid:{name}</UUID></TiffData>' for name in names)
    return lambda text: text.replace("<TiffData ", files + '<TiffData IFD="0"/>' * n + "<TiffData ", 1)


def test_planes_that_are_listed_again_and_again_are_compared_with_the_pages(tmp_path):
    """A million of them, of a file with one page, took tifffile ten seconds."""
    assert read_image(ome(tmp_path / "a.ome.tif", listing_planes(6))).shape == (8, 9, 2), "as of each colour"
    refused(ome(tmp_path / "b.ome.tif", listing_planes(2000)), "declare 2,002 planes, expected at most 1,020")
    in_others = ome(tmp_path / "c.ome.tif", listing_planes(2000, "x.tif", "y.tif"))
    assert read_image(in_others).shape == (8, 9, 2), "they may be in other files"


def test_images_that_ome_metadata_describe_are_compared_with_the_pages(tmp_path):
    image = (
        '<Image ID="I"><Pixels ID="P" DimensionOrder="XYCZT" Type="uint8" SizeX="9" SizeY="8" SizeZ="1" SizeC="1" '
        'SizeT="1"><TiffData/></Pixels></Image>'
    )
    more = '<TiffData><UUID FileName="x.tif">u</UUID></TiffData><TiffData><UUID FileName="y.tif">v</UUID></TiffData>'
    for name, n, last, words in (
        ("a", 2, "", "describe 3 images, expected at most 2"),
        ("b", MOST_IMAGES, image.replace("<TiffData/>", more), "describe 50,002 images, expected at most 50,000"),
    ):
        path = ome(
            tmp_path / f"{name}.ome.tif",
            lambda text, n=n, last=last: text.replace("</OME>", image * n + last + "</OME>"),
        )
        for read in READS:
            with pytest.raises(InputError) as problem:
                read(path)
            assert_one_sentence(problem, words)


@pytest.mark.parametrize(
    "mark",
    ["<a/>", '<a b="1" c="1"/>', "a\n", "&lt;a", "a\r"],
    ids=["element", "attribute", "line", "entity", "return"],
)
def test_metadata_of_millions_of_small_parts_are_not_parsed(tmp_path, mark):
    """60 MB of them, which is an allowed length, took 2 GB and half a minute."""
    text = mark * (MOST_MARKS // sum(map(mark.count, "<=&\r\n")) + 1)
    path = ome(tmp_path / "a.ome.tif", lambda before: before.replace("</OME>", text + "</OME>"))
    for read in READS:
        assert_refused_cheaply(read, path, 16 * len(text), "elements, attributes and lines, expected at most 2,500,000")


@pytest.mark.parametrize("given", ['End="1e9" Step="1"', 'End="1" Step="1e-9"', 'End="1" Step="0"'])
def test_lengths_of_further_axes(tmp_path, given):
    inner = f'<ModuloAlongZ Type="lifetime" Start="0" {given}/>'
    value = f'<XMLAnnotation ID="a" Namespace="x/modulo"><Value><Modulo>{inner}</Modulo></Value></XMLAnnotation>'
    added = f"<StructuredAnnotations>{value}</StructuredAnnotations></OME>"
    refused(ome(tmp_path / "a.ome.tif", lambda text: text.replace("</OME>", added)), "planes, expected at most")


@pytest.mark.parametrize("count", ["images", "channels", "slices", "frames"])
@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}], ids=str)
def test_imagej_metadata_that_declare_too_much(tmp_path, count, options):
    refused(plain(tmp_path / "a.tif", f"ImageJ=1.53\nimages={BIG}\n{count}={BIG}\n", **options))


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}], ids=str)
@pytest.mark.parametrize(
    "description",
    [
        f'{{"shape": [{BIG}, 8, 9]}}',
        f'{{"shape": [{BIG}, 1, 8, 9], "axes": "ZCYX", "truncated": true}}',
        f'{{"shape": [{"1," * 10**5} 8, 9]}}',
        f'{{"shape": {"[" * 10**5}{"]" * 10**5}}}',
    ],
    ids=["pages", "truncated", "axes", "deep"],
)
def test_shapes_that_declare_too_much(tmp_path, description, options):
    refused(plain(tmp_path / "a.tif", description, **options))


def test_metadata_of_an_absurd_length(tmp_path):
    path = plain(tmp_path / "a.tif", "x" * 100)
    with open(path, "r+b") as file:
        file.truncate(10**9)  # a hole, which takes no space
    with tifffile.TiffFile(path, mode="r+") as tiff:
        tag = tiff.pages.first.tags["ImageDescription"]
        offset = tag.offset
    with open(path, "r+b") as file:
        file.seek(offset + 4)
        file.write((MOST_TEXT + 1).to_bytes(4, "little"))
    with pytest.raises(InputError) as problem:
        read_image(path)
    assert_one_sentence(problem, f"its metadata have {MOST_TEXT + 1:,} bytes")


def test_honest_metadata_are_believed(tmp_path):
    tifffile.imwrite(tmp_path / "a.ome.tif", PLANES, ome=True, metadata={"axes": "CYX"}, photometric="minisblack")
    np.testing.assert_array_equal(read_image(tmp_path / "a.ome.tif"), np.moveaxis(PLANES, 0, -1))
    colour = np.zeros((4, 16, 16, 3), np.uint8)
    tifffile.imwrite(tmp_path / "b.ome.tif", colour, ome=True, metadata={"axes": "ZYXS"}, photometric="rgb")
    assert read_image(tmp_path / "b.ome.tif", 2).shape == (16, 16, 3)
    with tifffile.TiffWriter(tmp_path / "c.ome.tif", ome=True) as tiff:  # the first image is the smaller one
        for side in (8, 3000):
            tiff.write(np.zeros((2, side, side), np.uint8), metadata={"axes": "CYX"}, photometric="minisblack")
    assert MOST_PLANES > 100_000
    with pytest.raises(InputError, match="expected one image"):
        read_image(tmp_path / "c.ome.tif")


def test_metadata_that_declare_fewer_planes_than_there_are(tmp_path):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as tiff:
        for i in range(5):
            text = "ImageJ=1.11a\nimages=3\nchannels=3\nhyperstack=true\n" if i == 0 else None
            tiff.write(PLANES[0], metadata=None, description=text, compression="zlib", photometric="minisblack")
    for read in (read_image, what_was_read):
        with pytest.raises(InputError) as problem:
            read(path)
        assert_one_sentence(
            problem, f"cannot read {path}: its metadata declare 3 planes, but it has 5", "save it again"
        )


@pytest.mark.parametrize("shape", ["[16.0, 9]", "[2.0, 8, 9]"])
def test_a_shape_of_fractions_is_refused(tmp_path, shape):
    path = tmp_path / "a.tif"
    tifffile.imwrite(
        path, PLANES.reshape(16, 9) if shape.count(",") == 1 else PLANES, metadata=None, photometric="minisblack",
        description=f'{{"shape": {shape}}}', compression="zlib",
    )  # fmt: skip
    refused(path)


def directory(path, tags):
    """A TIFF whose only directory has some more tags: (tag, type, bytes of all values, number of values)."""
    tifffile.imwrite(path, PLANES[0], metadata=None, photometric="minisblack")
    with tifffile.TiffFile(path) as tiff:
        at, n_tags = tiff.pages.first.offset, len(tiff.pages.first.tags)
    content = path.read_bytes()
    entries = [content[at + 2 + 12 * i : at + 14 + 12 * i] for i in range(n_tags)]
    entries = [entry for entry in entries if struct.unpack("<H", entry[:2])[0] not in [tag for tag, *_ in tags]]
    for tag, kind, values, n_values in tags:
        entries.append(struct.pack("<HHII", tag, kind, n_values, len(content)))
        content += values
    entries.sort(key=lambda entry: struct.unpack("<H", entry[:2]))
    content = content[:4] + struct.pack("<I", len(content)) + content[8:]
    path.write_bytes(content + struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4))
    return path


def test_a_width_of_several_values_is_refused(tmp_path):
    path = directory(tmp_path / "a.tif", [(256, 4, struct.pack("<I", 9) * 1000, 1000)])
    refused(path, "its tag 256 has 1,000 values, expected one", "save it again")


def test_more_levels_than_a_pyramid_has_are_refused(tmp_path):
    path = directory(tmp_path / "a.tif", [(330, 4, struct.pack("<I", 8) * 1000, 1000)])
    refused(path, "one of its pages has 1,000 smaller versions, expected at most 100", "save it again")


def test_pages_that_share_the_values_of_a_tag_are_not_all_read(tmp_path):
    """400 directories, each of which says that its strips are at the same 50,000 places."""
    path = directory(tmp_path / "a.tif", [(273, 4, struct.pack("<I", 8) * 50_000, 50_000)])
    content = path.read_bytes()
    (at,) = struct.unpack_from("<I", content, 4)
    page = content[at:-4]
    file = content[:-4]
    for _ in range(399):
        file += struct.pack("<I", len(file) + 4) + page
    path.write_bytes(file + bytes(4))
    refused(path, "its tags have more values than an image of its size needs", "save it again")
