"""Zarr folders whose metadata or chunks say or hold something else than they should."""

import json
import struct
import zlib
from functools import partial

import zarr

from fuzz import special
from fuzz.damage import damaged
from fuzz.images import read_stack, whole_reads
from fuzz.lazily import read_in_parts, require_same
from fuzz.outcomes import attempted
from fuzz.pictures import values
from fuzz.values import change, pick
from hedgerow.images.reading import read_voxel_size

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")
WORDS = (
    *(
        "0",
        "1",
        "..",
        "../../x",
        "/",
        "zarr",
        "array",
        "group",
        "shape",
        "default",
        "uint8",
        "uint16",
        "float64",
        "bool",
    ),
    *(
        "<u2",
        "|S9",
        "|O",
        "bytes",
        "zstd",
        "gzip",
        "blosc",
        "transpose",
        "sharding_indexed",
        "crc32c",
        "vlen-utf8",
        "start",
    ),
    *(
        "multiscales",
        "datasets",
        "axes",
        "path",
        "space",
        "channel",
        "time",
        "micrometer",
        "c",
        "y",
        "x",
        "scale",
        "regular",
    ),
)
BOMB = 2**30  # bytes that a chunk of some kB decodes to


class Zarrs:
    """Makes and uses Zarr folders; bases: paths of whole ones."""

    name = "zarrs"

    def __init__(self, folder):
        place = folder / "whole"
        place.mkdir()
        _write_all(place)
        self.bases = sorted(place.iterdir())
        self.bombs = {"zstd": zstd_bomb(), "gzip": gzip_bomb()}
        for path in self.bases:  # which also loads what the worker needs, before its memory is limited
            self.use(path)

    def write(self, rng, folder):
        """The folder of a case, and what was done to it."""
        base, path = pick(rng, self.bases), folder / "image.zarr"
        special.copy(base, path)
        done = [self._change(path, rng) for _ in range(int(pick(rng, (1, 1, 2, 3))))]
        return path, f"{base.name}: {', '.join(done)}"

    def use(self, path):
        """Read whole and in parts, every level that there is."""
        image, _, _, first, _, stack, in_parts, _ = attempted(
            *whole_reads(path), partial(read_in_parts, path), partial(read_in_parts, path, level=1),
            partial(read_stack, path), partial(read_in_parts, path, pages="all"), partial(read_voxel_size, path),
        )  # fmt: skip
        require_same(image, first)
        require_same(stack, in_parts)

    def _change(self, path, rng):
        files = special.plain_files(path)
        tables = [one for one in files if one.name in METADATA]
        chunks = [one for one in files if one.name not in METADATA]
        kind = rng.random()
        if kind < 0.6 and tables:
            return _change_table(pick(rng, tables), path, rng)
        if not files:
            return "nothing"
        file = pick(rng, chunks or files)
        if kind < 0.75:
            file = pick(rng, files)
            return f"{file.relative_to(path)} is {special.exchange(file, rng)}"
        if kind < 0.85:
            name = pick(rng, sorted(self.bombs))
            file.write_bytes(self.bombs[name])
            return f"{file.relative_to(path)} is a bomb ({name})"
        if kind < 0.9:
            other = pick(rng, files)
            file.write_bytes(other.read_bytes())
            return f"{file.relative_to(path)} as {other.relative_to(path)}"
        content, done = damaged(file.read_bytes(), rng)
        file.write_bytes(content)
        return f"{file.relative_to(path)}: {done}"


def _write_all(folder):
    """Arrays of Zarr 2 and 3, and OME-Zarr 0.4 and 0.5 with two levels."""
    three = values("uint16", 3, first=True)
    zarr.create_array(folder / "plain3", data=values("uint16"), chunks=(8, 8))
    zarr.create_array(folder / "gzip3", data=values(), chunks=(20, 23), compressors=zarr.codecs.GzipCodec())
    chunk = folder / "gzip3" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:4] + bytes(4) + chunk.read_bytes()[8:])  # without the time
    zarr.create_array(folder / "raw3", data=values("float32"), chunks=(16, 16), compressors=None)
    zarr.create_array(folder / "shards3", data=three, chunks=(1, 8, 8), shards=(1, 24, 24))
    zarr.create_array(folder / "plain2", data=values(), chunks=(8, 8), zarr_format=2)
    axes = [{"name": name, "type": kind} for name, kind in (("c", "channel"), ("y", "space"), ("x", "space"))]
    for axis in axes[1:]:
        axis["unit"] = "micrometer"
    for version, form in (("0.4", 2), ("0.5", 3)):
        group = zarr.create_group(folder / f"ome{form}", zarr_format=form)
        datasets = []
        for level in range(2):
            level_data = three[:, :: 2**level, :: 2**level]
            group.create_array(str(level), data=level_data, chunks=(1, 16, 16))
            scale = {"type": "scale", "scale": [1.0, 0.5 * 2**level, 0.5 * 2**level]}
            datasets.append({"path": str(level), "coordinateTransformations": [scale]})
        multiscale = {"axes": axes, "datasets": datasets, "name": "image", "type": "mean"}
        if form == 2:
            group.attrs["multiscales"] = [multiscale | {"version": version}]
        else:
            group.attrs["ome"] = {"version": version, "multiscales": [multiscale]}


def _change_table(file, path, rng):
    """Other entries, or another text."""
    try:
        text = file.read_text(encoding="utf-8")
        tree = json.loads(text)
        if rng.random() < 0.1:
            text, done = pick(rng, TEXTUAL)(text, tree)
        else:
            done = change(tree, rng, WORDS)
            text = json.dumps(tree)
    except (ValueError, RecursionError):  # it was changed before
        return "nothing"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return f"{file.relative_to(path)}: {done}"


def _nested(text, tree):
    return "[" * 100_000, "nested without an end"


def _deep(text, tree):
    return text.rstrip()[:-1] + ', "attributes": ' + '{"a":' * 3000 + "1" + "}" * 3001, "nested deeply"


def _digits(text, tree):
    return text.replace("20", "9" * 5000, 1), "5,000 digits"


def _long(text, tree):
    return text.rstrip()[:-1] + ', "more": "' + "x" * 10**6 + '"}', "a text of 1 MB"


def _marked(text, tree):
    return "\ufeff" + text, "a byte order mark"


def _huge(text, tree):
    """A shape and chunks that fit each other, and nothing else."""
    for table in (tree, *(one for one in tree.values() if isinstance(one, dict))):
        if "shape" in table:
            table["shape"] = _all_sides(table["shape"], 2**31)
        if "chunks" in table:
            table["chunks"] = _all_sides(table["chunks"], 1)
    grid = tree.get("chunk_grid")
    if isinstance(grid, dict) and isinstance(grid.get("configuration"), dict):
        grid["configuration"]["chunk_shape"] = _all_sides(tree.get("shape"), 1)
    return json.dumps(tree), "huge, in chunks of one pixel"


def _all_sides(given, side):
    """The same number of sides, each of this length; what an earlier change put in their place stays."""
    return [side for _ in given] if isinstance(given, list) else given


TEXTUAL = (_nested, _deep, _digits, _long, _marked, _huge)


def zstd_bomb(size=BOMB):
    """Zeros in Zstandard: blocks that say how often one byte is repeated."""
    most = 2**17
    blocks = [(most << 3 | 1 << 1).to_bytes(3, "little") + b"\0"] * (size // most)
    blocks[-1] = (most << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", size) + b"".join(blocks)


def gzip_bomb(size=BOMB):
    """Zeros in gzip, compressed once and repeated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + block * (size // 2**20) + end + struct.pack("<II", 0, size % 2**32)
