"""Changes to what image files say about themselves, so that the file as a whole stays believable."""

import io
import json
import re
import struct
import zlib

import tifffile

from fuzz.pictures import values
from fuzz.values import NUMBERS, TEXTS, change, pick

SIZES = (0, 1, 2, 22, 24, 0x7FFF, 0xFFFF, 10**5, 2 * 10**6, 2**24, 2**31 - 1, 2**31, 2**32 - 1)


def png(content, rng):
    """Other chunks: fields of the header, order, number, content; the checksums are right."""
    chunks, at = [], 8
    while at + 8 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    kind, which = rng.integers(6), int(rng.integers(len(chunks)))
    if kind <= 2:
        fields = list(struct.unpack(">IIBBBBB", chunks[0][1]))
        number = int(rng.integers(7))
        fields[number] = pick(rng, SIZES) if number < 2 else int(rng.integers(0, 20))
        chunks[0], done = (b"IHDR", struct.pack(">IIBBBBB", *fields)), f"header field {number} = {fields[number]}"
    elif kind == 3:
        chunks.insert(int(rng.integers(len(chunks) + 1)), chunks[which])
        done = f"{chunks[which][0]} twice"
    elif kind == 4:
        done = f"no {chunks.pop(which)[0]}"
    else:
        name = pick(rng, (b"PLTE", b"tRNS", b"iCCP", b"zTXt", b"iTXt", b"gAMA", b"acTL", b"fcTL", b"IDAT", b"eXIf"))
        body = pick(rng, (b"", b"\0" * 5, b"x\0\0" + zlib.compress(bytes(10**6)), zlib.compress(bytes(10**7))))
        chunks.insert(int(rng.integers(1, len(chunks) + 1)), (name, body))
        done = f"{name} of {len(body)} bytes more"
    return content[:8] + b"".join(_chunk(*one) for one in chunks), done


def _chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def jpeg(content, rng):
    """Other sizes, numbers of channels, or lengths of segments."""
    marks = [match.start() for match in re.finditer(rb"\xff[\xc0-\xcf\xda-\xef]", content)]
    at = pick(rng, marks)
    changed = bytearray(content)
    field = int(rng.integers(2, 14))
    value = pick(rng, (0, 1, 2, 0xFF, 0x7FFF, 0xFFFF, 0xFF00))
    changed[at + field : at + field + 2] = value.to_bytes(2, "big")
    return bytes(changed), f"{value} in the segment at {at}"


def npy(content, rng):
    """Another text in the header: shape, type or order."""
    length = struct.unpack("<H", content[8:10])[0]
    text = content[10 : 10 + length].decode("latin1")
    number = str(pick(rng, NUMBERS))
    shape = pick(rng, (f"({number}, 23)", f"(20, {number})", "(460,)", "()", "(20, 23, 0)", "(4, 5, 23)", f"{number}"))
    dtype = pick(rng, ("|O", "<U4", "<c8", "<M8[s]", "<f2", ">i8", "|V1", "|b1", "<f16", "<u3", "\x1b[2J", "," * 50))
    text = pick(
        rng,
        (
            re.sub(r"\([\d, ]*\)", lambda _: shape, text),
            re.sub(r"'[<>|]..'", lambda _: repr(dtype), text),
            text.replace("False", pick(rng, ("True", "None", "0", "[]"))),
            text.replace("descr", pick(rng, ("x", "shape"))),
            "{" * 300,
            "[" * 5000,
        ),
    )
    header = text.rstrip().encode("latin1", "replace") + b"\n"
    return content[:8] + struct.pack("<H", len(header)) + header + content[10 + length :], f"header {text[:60]!r}"


def tiff(content, rng):
    """One field of one entry of one directory: its number, type, count or value; or where the next directory is."""
    order = "<" if content[:2] == b"II" else ">"
    is_big = struct.unpack(order + "H", content[2:4])[0] == 43
    word, size = ("Q", 8) if is_big else ("I", 4)
    directories, at = [], struct.unpack(order + word, content[size : 2 * size])[0]
    while at and len(directories) < 20:
        n = struct.unpack_from(order + ("Q" if is_big else "H"), content, at)[0]
        directories.append((at + (8 if is_big else 2), n))
        at = struct.unpack_from(order + word, content, directories[-1][0] + n * (20 if is_big else 12))[0]
    first, n = pick(rng, directories)
    changed = bytearray(content)
    if rng.random() < 0.1:
        where = first + n * (20 if is_big else 12)
        target = pick(rng, (0, 8, first - (8 if is_big else 2), len(content), 2**31))
        struct.pack_into(order + word, changed, where, target)
        return bytes(changed), f"next directory at {target}"
    entry = first + int(rng.integers(n)) * (20 if is_big else 12)
    tag = struct.unpack_from(order + "H", content, entry)[0]
    field = int(rng.integers(5))
    if field == 0:
        value = int(pick(rng, (254, 256, 257, 258, 259, 262, 273, 277, 279, 284, 317, 320, 322, 330, 338, 339, 700)))
        struct.pack_into(order + "H", changed, entry, value)
    elif field == 1:
        value = int(rng.integers(0, 20))
        struct.pack_into(order + "H", changed, entry + 2, value)
    elif field == 2:
        value = pick(rng, SIZES)
        struct.pack_into(order + word, changed, entry + 4, value)
    else:
        value = pick(rng, (*SIZES, 5, 6, 7, 8, 16, 32773, 34712, 50000))
        struct.pack_into(order + word, changed, entry + 4 + size, value)
    return bytes(changed), f"field {field} of tag {tag} = {value}"


def described_tiff(rng):
    """A TIFF whose description, as OME or ImageJ writes it, says something else than its pages."""
    three = values("uint16", 3, first=True)
    file = io.BytesIO()
    is_ome = rng.random() < 0.5
    kind = {"ome": True} if is_ome else {"imagej": True}
    tifffile.imwrite(file, three, metadata={"axes": "CYX"}, photometric="minisblack", **kind)
    file.seek(0)
    with tifffile.TiffFile(file) as tiff_file:
        text = tiff_file.pages[0].description
    places = list(re.finditer(r"(?<==)\"?[\w.]+\"?", text))
    done = []
    for _ in range(int(rng.integers(1, 4))):
        place = pick(rng, places)
        value = str(pick(rng, (*NUMBERS, 2, 3, 4, 6, "TZCYX", "true", *TEXTS[:8])))[:30]
        quote = '"' if place[0].startswith('"') else ""
        text = text[: place.start()] + quote + value + quote + text[place.end() :]
        places = list(re.finditer(r"(?<==)\"?[\w.]+\"?", text))
        done.append(f"{place[0]} -> {value!r}")
    if is_ome and rng.random() < 0.1:
        entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10 if i else "x"}">' for i in range(9))
        text = f"<!DOCTYPE OME [{entities}]>" + text.replace("Name=", 'x="&e8;" Name=', 1)
        done.append("entities")
    file = io.BytesIO()
    plain = text.encode("ascii", "replace")
    tifffile.imwrite(
        file, three, description=plain, metadata=None, photometric="minisblack", contiguous=rng.random() < 0.5
    )
    return file.getvalue(), ", ".join(done)


def table(content, rng):
    """Other entries of a JSON file, as Zarr has them."""
    tree = json.loads(content)
    words = ("0", "zarr", "default", "uint8", "float64", "bytes", "zstd", "gzip", "blosc", "array", "group", "shape")
    done = change(tree, rng, words)
    return json.dumps(tree).encode("utf-8", "surrogatepass"), done


BY_ENDING = {".png": png, ".jpg": jpeg, ".npy": npy, ".tif": tiff}
