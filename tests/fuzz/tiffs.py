"""TIFF files whose tags and descriptions (OME-XML, ImageJ, tifffile's own, other programs') say something odd."""

import copy
import io
import json
import re
import struct
from dataclasses import dataclass
from functools import partial

import tifffile

from fuzz.images import read_stack, whole_reads
from fuzz.lazily import read_in_parts, require_same
from fuzz.outcomes import attempted, require
from fuzz.pictures import values
from fuzz.special import exchange
from fuzz.values import NUMBERS, TEXTS, change, pick
from fuzz.xmls import change_xml
from hedgerow.images.reading import open_image, read_voxel_size

DESCRIPTION, SOFTWARE = 270, 305
SIZES = (0, 1, 2, 3, 8, 15, 16, 22, 24, 255, 4096, 65535, 10**5, 2 * 10**6, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
CODES = (*range(11), 32773, 32946, 33003, 34712, 34887, 34925, 50000, 50001, 50002, 65000)
TAGS = (
    *(254, 255, 256, 257, 258, 259, 262, 266, 270, 273, 274, 277, 278, 279, 282, 283, 284, 296, 305, 317, 320, 322),
    *(323, 324, 325, 330, 338, 339, 340, 347, 530, 700, 33550, 33628, 33629, 34361, 34412, 42113, 50838, 50839, 65426),
)
LENGTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}  # bytes of a type
WORDS = (
    *("TCZYX", "XYZCT", "XYCZT", "YX", "SYX", "XYXY", "uint8", "double", "complex", "bit", "float", "int32", "true"),
    *("urn:uuid:00000000-0000-0000-0000-000000000000", "../../x.tif", "/dev/zero", "http://127.0.0.1:9/x.tif", "again"),
    *(
        "Pixels",
        "Channel",
        "TiffData",
        "Image",
        "Plate",
        "Well",
        "BinaryOnly",
        "Modulo",
        "OME",
        "Plane",
        "MetadataOnly",
    ),
)
# How descriptions of other programs begin.
PROGRAMS = (
    *("ImageJ=1.53\n", "<?xml version='1.0'?>\n<MetaData>", "SCANIMAGE.SI.hChannels", "state.configPath = 1\r", "<OME"),
    *("Aperio Image Library\n0x0 ->|", '{"shape": [2, 2]}', "shape=(3, 20, 23)", "[Exif]\n", "<PerkinElmer-QPI-"),
    *(
        "DEMO|Philips",
        "<DataObject ObjectType='DPUfsImport'>",
        "<scn xmlns='http://www.leica'>",
        "Indica Labs",
        "MetaMorph",
    ),
    *("Olympus SIS", "Andor", "FluoView", "<iScan", "<METADATA>", "Gatan", "pylibCZIrw", "NDPI", "QPTIFF", "\x00" * 40),
)


@dataclass
class Entry:
    """A tag of a directory, as it stands in the file; value: all of its bytes."""

    tag: int
    type: int
    count: int
    value: bytes


class Tiffs:
    """Makes and uses TIFF files; bases: (name, bytes) of whole ones."""

    name = "tiffs"

    def __init__(self, folder):
        self.bases = dict(_bases())
        for name, content in self.bases.items():
            path = folder / f"{name}.tif"
            for whole in (content, written(directories(content), content)):
                path.write_bytes(whole)
                self.use(path)  # which also loads what the worker needs, before its memory is limited

    def write(self, rng, folder):
        """The file of a case, and what was done to it."""
        name = pick(rng, sorted(self.bases))
        content = self.bases[name]
        path = folder / "image.tif"
        result, done = directories(content), []
        described = [entry for page in result for entry in page if entry.tag == DESCRIPTION]
        if described and rng.random() < 0.6:
            done.append(_change_description(described[0], name, rng))
        if not done or rng.random() < 0.4:
            done += [_change_tags(result, rng) for _ in range(int(rng.integers(1, 4)))]
        path.write_bytes(written(result, content))
        if rng.random() < 0.01:
            done.append(f"it is {exchange(path, rng)}")
        return path, f"{name}: {', '.join(done)}"

    def use(self, path):
        """Read whole and in parts, a page and all pages; and its size alone, and its size of a pixel."""
        image, _, _, in_parts, stack, stack_in_parts, source, _ = attempted(
            *whole_reads(path), partial(read_in_parts, path), partial(read_stack, path),
            partial(read_in_parts, path, pages="all"), partial(open_image, path), partial(read_voxel_size, path),
        )  # fmt: skip
        # The pages of ImageJ's files lie behind the first one, or where each says: tifffile may believe either.
        is_imagej = path.is_file() and b"ImageJ=" in path.read_bytes()
        require_same(image, in_parts, values=not is_imagej)
        require_same(stack, stack_in_parts, values=not is_imagej)
        if image is not None and source is not None:
            require(image.shape == source.shape, f"{image.shape} read, {source.shape} described")


def _bases():
    three, plain = values("uint16", 3, first=True), {"photometric": "minisblack"}
    hyper = values("uint8", 2, 3, first=True)
    for name, array, options in (
        ("ome", three, {"ome": True, "metadata": {"axes": "CYX", "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm"}}),
        ("ome-tiled", three, {"ome": True, "metadata": {"axes": "CYX"}, "tile": (16, 16), "compression": "zlib"}),
        ("ome-hyper", hyper, {"ome": True, "metadata": {"axes": "ZCYX"}}),
        ("imagej", three, {"imagej": True, "metadata": {"axes": "CYX"}, "resolution": (2.0, 2.0)}),
        ("imagej-hyper", hyper, {"imagej": True, "metadata": {"axes": "ZCYX", "Labels": ["a"] * 6}}),
        ("shaped", three, {"metadata": {"axes": "CYX"}}),
        ("shaped-strips", values("uint8"), {"rowsperstrip": 7, "compression": "packbits"}),
        ("plain", values(), {"metadata": None}),
        ("tiled", values("float32"), {"metadata": None, "tile": (16, 16), "compression": "zlib", "predictor": True}),
        ("colour", values("uint8", 3), {"metadata": None, "photometric": "rgb", "compression": "lzw"}),
        ("jpeg", values("uint8", 3), {"metadata": None, "photometric": "rgb", "compression": "jpeg"}),
        ("planar", values("uint8", 3, first=True), {"photometric": "rgb", "planarconfig": "separate"}),
    ):
        file = io.BytesIO()
        tifffile.imwrite(file, array, **(plain | options))
        yield name, re.sub(rb"(?<=urn:uuid:)[0-9a-f-]{36}", b"0" * 36, file.getvalue())
    file = io.BytesIO()
    with tifffile.TiffWriter(file, ome=True) as tiff:
        tiff.write(three[0], subifds=1, **plain)
        tiff.write(three[0, ::2, ::2], subfiletype=1, **plain)
    yield "ome-pyramid", re.sub(rb"(?<=urn:uuid:)[0-9a-f-]{36}", b"0" * 36, file.getvalue())


def directories(content):
    """The entries of every directory of a classic TIFF, little endian: a list of lists."""
    result, at = [], struct.unpack_from("<I", content, 4)[0]
    while at:
        (n,) = struct.unpack_from("<H", content, at)
        entries = []
        for i in range(n):
            tag, kind, count = struct.unpack_from("<HHI", content, at + 2 + 12 * i)
            length, where = LENGTHS[kind] * count, at + 10 + 12 * i
            if length > 4:
                (where,) = struct.unpack_from("<I", content, where)
            entries.append(Entry(tag, kind, count, content[where : where + length]))
        result.append(entries)
        (at,) = struct.unpack_from("<I", content, at + 2 + 12 * n)
    return result


def written(pages, content):
    """A file with these directories behind what was there, so that their offsets still lead to the pixels."""
    file = bytearray(content)
    link = 4
    for entries in pages:
        table = b""
        for entry in entries:
            value = entry.value
            if len(value) > 4:
                place = struct.pack("<I", len(file))
                file += value + bytes(len(value) % 2)
            else:
                place = value.ljust(4, b"\0")
            table += struct.pack("<HHI", entry.tag, entry.type, entry.count % 2**32) + place
        struct.pack_into("<I", file, link, len(file))
        link = len(file) + 2 + len(table)
        file += struct.pack("<H", len(entries)) + table + bytes(4)
    return bytes(file)


def _change_description(entry, name, rng):
    text = entry.value.rstrip(b"\0").decode("utf-8")
    if rng.random() < 0.08:
        text, done = pick(rng, PROGRAMS) + pick(rng, ("", text)), "of another program"
    elif name.startswith("ome"):
        text, done = change_xml(text, rng, WORDS)
    elif name.startswith("shaped"):
        tree = json.loads(text)
        done = ", ".join(change(tree, rng, WORDS) for _ in range(int(rng.integers(1, 3))))
        text = json.dumps(tree)
    else:
        text, done = _change_lines(text, rng)
    entry.value = text.encode("utf-8", "surrogatepass") + b"\0"
    entry.count = len(entry.value)
    return done


def _change_lines(text, rng):
    """Lines of NAME=VALUE, as ImageJ writes them."""
    lines = text.splitlines()
    at = int(rng.integers(len(lines)))
    kind, key = rng.integers(6), lines[at].partition("=")[0]
    if kind == 0:
        lines.insert(at, lines.pop())
    elif kind == 1:
        lines += [lines[at]] * int(pick(rng, (1, 3000)))
    elif kind == 2:
        key = pick(
            rng, ("images", "channels", "slices", "frames", "hyperstack", "min", "max", "mode", "spacing", "unit")
        )
        lines.append(f"{key}={pick(rng, NUMBERS)}")
    else:
        lines[at] = f"{key}={str(pick(rng, (*NUMBERS, *NUMBERS, *TEXTS, 2, 3, 6)))[:5000]}"
    return "\n".join(lines) + "\n", f"{key!r:.30} of {lines[at]!r:.40}"


def _change_tags(pages, rng):
    """One change to the directories."""
    page = pick(rng, pages)
    kind = rng.integers(10)
    if kind == 0:
        pages += [[copy.copy(entry) for entry in page] for _ in range(int(pick(rng, (1, 40, 300))))]
        return f"{len(pages)} pages"
    if kind == 1 and len(pages) > 1:
        pages.remove(page)
        return "a page less"
    if not page:
        return "nothing"
    entry = pick(rng, page)
    if kind == 2:
        page.remove(entry)
        return f"no tag {entry.tag}"
    if kind == 3:
        entry = copy.copy(entry)
        entry.tag = pick(rng, TAGS)
        page.append(entry)
        page.sort(key=lambda one: one.tag)
        return f"tag {entry.tag} more"
    if kind == 4:
        entry.type = int(pick(rng, (*LENGTHS, 0, 16, 99)))
        return f"tag {entry.tag} of type {entry.type}"
    if kind == 5:
        entry.count = pick(rng, (*SIZES, entry.count + 1, entry.count - 1, entry.count * 1000))
        return f"tag {entry.tag} has {entry.count} values"
    return _change_value(entry, rng)


def _change_value(entry, rng):
    length = LENGTHS.get(entry.type, 1)
    if length not in (2, 4) or not entry.value:
        entry.value = bytes(rng.integers(0, 256, len(entry.value)).astype("uint8"))
        return f"tag {entry.tag} has other bytes"
    value = int(pick(rng, (*SIZES, *CODES))) % 256**length
    n = len(entry.value) // length
    repeated = int(pick(rng, (n, n, n, 1000, 2**17)))
    item = value.to_bytes(length, "little")
    at = int(rng.integers(max(n, 1))) * length
    if repeated == n:
        entry.value = entry.value[:at] + item + entry.value[at + length :]
    else:
        entry.value, entry.count = item * repeated, repeated
    return f"tag {entry.tag} = {value} ({entry.count})"
