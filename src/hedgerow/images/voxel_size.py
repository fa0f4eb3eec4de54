"""How large a pixel is, and how far apart z planes are: image files say it in several ways."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

_INCH = 25400.0  # micrometres
_PIECE = 2**16  # characters of OME-XML that are parsed before the first image is looked for
_MICROMETRES = {
    **dict.fromkeys(("nm", "nanometer", "nanometre", "nanometers"), 1e-3),
    **dict.fromkeys(("um", "µm", "μm", "micron", "microns", "micrometer", "micrometre", "micrometers"), 1.0),
    **dict.fromkeys(("mm", "millimeter", "millimetre", "millimeters"), 1e3),
    **dict.fromkeys(("cm", "centimeter", "centimetre", "centimeters"), 1e4),
    **dict.fromkeys(("m", "meter", "metre", "meters"), 1e6),
    **dict.fromkeys(("in", "inch", "inches", '"'), _INCH),
}
_TIFF_UNITS = {2: "inch", 3: "cm"}  # the tag ResolutionUnit
_SCREEN_DENSITIES = (72.0, 96.0)  # dots per inch, which programs write when they do not know the real size


@dataclass(frozen=True)
class VoxelSize:
    """Height and width of a pixel, and the distance between z planes if it is known, in micrometres."""

    height: float
    width: float
    depth: float | None = None

    @property
    def area(self) -> float:
        """Area of a pixel in square micrometres."""
        return self.height * self.width

    @property
    def anisotropy(self) -> float | None:
        """How much farther apart z planes are than the rows of a plane; None: unknown."""
        return None if self.depth is None else self.depth / self.height

    def __str__(self) -> str:
        sides = (self.height, self.width) if self.depth is None else (self.depth, self.height, self.width)
        return f"voxels of {' x '.join(f'{side:.4g}' for side in sides)} micrometres"


def voxel_size(height: Any, width: Any, unit: Any = "um", depth: Any = None) -> VoxelSize | None:
    """The size of a voxel in any unit of length; None if its height or width is not a length."""
    return _from_sides(_micrometres(height, unit), _micrometres(width, unit), _micrometres(depth, unit))


def from_density(down: float, across: float, unit: str) -> VoxelSize | None:
    """The size of a pixel from the number of pixels per unit of length; None for the usual densities of screens."""
    with suppress(ZeroDivisionError, OverflowError, TypeError):
        size = voxel_size(1 / down, 1 / across, unit)
        if size is None or any(
            math.isclose(size.height, _INCH / dots, rel_tol=1e-3) and math.isclose(size.width, size.height)
            for dots in _SCREEN_DENSITIES
        ):
            return None
        return size
    return None


def of_tiff(tiff: Any) -> VoxelSize | None:
    """The voxel size of an open TIFF: from its OME metadata, or its resolution in the unit of ImageJ or of the tags."""
    with suppress(Exception):  # where metadata are damaged the size is unknown; damaged pixels are reported on reading
        if tiff.is_ome:
            return of_ome(tiff.ome_metadata)
        tags = tiff.pages.first.tags
        across, down = (_ratio(tags[name].value) for name in ("XResolution", "YResolution"))
        imagej = (tiff.imagej_metadata or {}) if tiff.is_imagej else {}
        if unit := imagej.get("unit"):
            # Even if it equals the density of a screen: somebody chose a unit.
            return voxel_size(1 / down, 1 / across, _unescaped(str(unit)), imagej.get("spacing"))
        return from_density(down, across, _TIFF_UNITS.get(int(tags["ResolutionUnit"].value), ""))
    return None


def of_ome(text: str) -> VoxelSize | None:
    """The voxel size of the first image in OME-XML; the rest, such as a list of planes, is not parsed."""
    parser: Any = ElementTree.XMLPullParser(["start"])
    for start in range(0, len(text) + 1, _PIECE):
        parser.feed(text[start : start + _PIECE])
        if start + _PIECE > len(text):
            parser.close()
        for _, element in parser.read_events():
            if element.tag.rpartition("}")[2] == "Pixels":
                lengths = (element.get(f"PhysicalSize{axis}") for axis in "YXZ")
                units = (element.get(f"PhysicalSize{axis}Unit", "µm") for axis in "YXZ")
                return _from_sides(*map(_micrometres, lengths, units))
    return None


def of_multiscale(multiscale: Mapping[str, Any], level: int = 0) -> VoxelSize | None:
    """The voxel size in the metadata of an OME-Zarr, at a level of its pyramid."""
    with suppress(Exception):
        steps = multiscale["datasets"][level]["coordinateTransformations"]
        scale = next(step["scale"] for step in steps if step["type"] == "scale")
        sides = {
            axis["name"]: _micrometres(length, axis.get("unit", ""))
            for axis, length in zip(multiscale["axes"], scale, strict=True)
        }
        return _from_sides(sides["y"], sides["x"], sides.get("z"))
    return None


def _micrometres(length: Any, unit: Any) -> float | None:
    """A length in micrometres; None if it is not a positive number, or the unit is unknown."""
    with suppress(TypeError, ValueError, OverflowError):
        value = float(length) * _MICROMETRES.get(str(unit).strip().lower(), math.nan)
        return value if 0 < value < math.inf else None  # NaN fails too
    return None


def _from_sides(height: float | None, width: float | None, depth: float | None) -> VoxelSize | None:
    if height is None or width is None or not 0 < height * width < math.inf:
        return None
    return VoxelSize(height, width, depth)


def _unescaped(text: str) -> str:
    """ImageJ writes letters outside ASCII as \\u00B5."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\u" in text else text


def _ratio(value: Any) -> float:
    numerator, denominator = value
    return float(numerator) / float(denominator)
