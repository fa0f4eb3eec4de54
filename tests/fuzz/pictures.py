"""Small whole images of every kind that can be read, to be changed: each a file, or a folder for Zarr."""

import re

import numpy as np
import tifffile
import zarr
from PIL import Image

SIZE = (20, 23)


def values(dtype="uint8", *channels, first=False):
    """Smooth values with some noise: (20,23), (20,23,C) or (C,20,23)."""
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    noise = np.random.default_rng(1).integers(0, 9, (*channels, *SIZE))
    whole = (5 * rows + 3 * columns + noise).astype(dtype)
    return whole if first or not channels else np.moveaxis(whole, 0, -1)


def write_all(folder):
    """Write them into a folder -> their paths, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    for write in (_write_png, _write_jpeg, _write_tiff, _write_odd_tiff, _write_npy, _write_zarr):
        write(folder)
    return sorted(folder.iterdir())


def _write_png(folder):
    grey, colour = Image.fromarray(values()), Image.fromarray(values("uint8", 3))
    grey.save(folder / "grey.png")
    colour.save(folder / "colour.png")
    Image.fromarray(values("uint8", 4)).save(folder / "alpha.png")
    Image.fromarray(values("uint8", 2)).save(folder / "grey-alpha.png")
    Image.fromarray(values("uint16") * 99).save(folder / "grey16.png")
    colour.quantize(7).save(folder / "palette.png", transparency=2)
    grey.convert("1").save(folder / "bit.png")


def _write_jpeg(folder):
    grey, colour = Image.fromarray(values()), Image.fromarray(values("uint8", 3))
    grey.save(folder / "grey.jpg")
    turned = Image.Exif()
    turned[0x0112] = 6
    colour.save(folder / "colour.jpg", exif=turned, progressive=True)
    colour.convert("CMYK").save(folder / "four.jpg")


def _write_tiff(folder):
    plain = {"photometric": "minisblack"}
    tifffile.imwrite(folder / "plain.tif", values(), **plain)
    tifffile.imwrite(folder / "grey16.tif", values("uint16"), byteorder=">", **plain)
    tifffile.imwrite(folder / "float.tif", values("float32"), compression="zlib", predictor=True, **plain)
    tifffile.imwrite(folder / "colour.tif", values("uint8", 3), photometric="rgb", compression="lzw")
    tifffile.imwrite(folder / "planar.tif", values("uint8", 3, first=True), photometric="rgb", planarconfig="separate")
    tifffile.imwrite(folder / "jpeg.tif", values("uint8", 3), photometric="rgb", compression="jpeg")
    tifffile.imwrite(folder / "packbits.tif", values(), compression="packbits", rowsperstrip=3, **plain)
    table = np.random.default_rng(2).integers(0, 65536, (3, 256)).astype(np.uint16)
    tifffile.imwrite(folder / "palette.tif", values(), photometric="palette", colormap=table)


def _write_odd_tiff(folder):
    plain = {"photometric": "minisblack"}
    tifffile.imwrite(folder / "big.tif", values("uint16"), bigtiff=True, tile=(16, 16), **plain)
    three = values("uint16", 3, first=True)
    tifffile.imwrite(folder / "ome.ome.tif", three, ome=True, metadata={"axes": "CYX"}, **plain)
    content = (folder / "ome.ome.tif").read_bytes()
    always = re.sub(rb"(?<=urn:uuid:)[0-9a-f-]{36}", b"0" * 36, content)  # else another number every time
    (folder / "ome.ome.tif").write_bytes(always)
    tifffile.imwrite(folder / "imagej.tif", three, imagej=True, metadata={"axes": "CYX"})
    with tifffile.TiffWriter(folder / "pages.tif") as tiff:
        for page in three:
            tiff.write(page, contiguous=False, metadata=None, **plain)
    with tifffile.TiffWriter(folder / "sizes.tif") as tiff:
        for page in (three[0], three[1, ::2, ::2]):
            tiff.write(page, metadata=None, **plain)
    with tifffile.TiffWriter(folder / "pyramid.tif") as tiff:
        tiff.write(three[0], subifds=1, **plain)
        tiff.write(three[0, ::2, ::2], subfiletype=1, **plain)


def _write_npy(folder):
    np.save(folder / "grey.npy", values())
    np.save(folder / "float.npy", values("float64"))
    np.save(folder / "colour.npy", np.asfortranarray(values("uint16", 3)))
    np.save(folder / "planes.npy", values(">f4", 2, first=True))


def _write_zarr(folder):
    zarr.create_array(folder / "plain.zarr", data=values("uint16"), chunks=(8, 8))
    zarr.create_array(folder / "second.zarr", data=values(), chunks=(20, 23), zarr_format=2)
    group = zarr.create_group(folder / "ome.zarr", zarr_format=3)
    axes = [{"name": name, "type": kind} for name, kind in (("c", "channel"), ("y", "space"), ("x", "space"))]
    scale = {"type": "scale", "scale": [1.0, 1.0, 1.0]}
    dataset = {"path": "0", "coordinateTransformations": [scale]}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": [dataset]}]}
    three = values("uint16", 3, first=True)
    array = group.create_array("0", shape=three.shape, dtype=three.dtype, chunks=(1, 8, 16), shards=(1, 24, 32))
    array[...] = three
