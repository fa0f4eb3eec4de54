"""How large a pixel is, as image files say it in one of several ways."""

import math
from collections.abc import Mapping, Sequence
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
_OF_SCREENS = (72.0, 96.0)  # dots per inch that programs write when they know nothing of the object's size


@dataclass(frozen=True)
class PixelSize:
    """Height and width of a pixel in micrometres."""

    height: float
    width: float

    @property
    def area(self) -> float:
        """In square micrometres."""
        return self.height * self.width


def pixel_size(height: Any, width: Any, unit: Any = "um") -> PixelSize | None:
    """The size of a pixel given in any unit of length; None where that is no size or no unit that is known."""
    with suppress(TypeError, ValueError, OverflowError):
        scale = _MICROMETRES.get(str(unit).strip().lower(), math.nan)
        size = PixelSize(float(height) * scale, float(width) * scale)
        if all(0 < side < math.inf for side in (size.height, size.width, size.area)):  # also refuses NaN
            return size
    return None


def from_density(down: float, across: float, unit: str) -> PixelSize | None:
    """The size of a pixel of which there are so many per unit of length; the density of screens says nothing."""
    with suppress(ZeroDivisionError, OverflowError, TypeError):
        size = pixel_size(1 / down, 1 / across, unit)
        if size is None or any(
            math.isclose(size.height, _INCH / dots, rel_tol=1e-3) and math.isclose(size.width, size.height)
            for dots in _OF_SCREENS
        ):
            return None
        return size
    return None


def of_tiff(tiff: Any) -> PixelSize | None:
    """What an open TIFF says: its OME metadata, or its resolution in the unit that ImageJ or the tags give it."""
    with suppress(Exception):  # damaged metadata says nothing; whoever reads the pixels tells of a damaged file
        if tiff.is_ome:
            return of_ome(tiff.ome_metadata)
        tags = tiff.pages.first.tags
        across, down = (_ratio(tags[name].value) for name in ("XResolution", "YResolution"))
        if tiff.is_imagej and (unit := (tiff.imagej_metadata or {}).get("unit")):
            # Not the density of a screen, even where it equals one: a unit was chosen.
            return pixel_size(1 / down, 1 / across, _escaped(str(unit)))
        return from_density(down, across, _TIFF_UNITS.get(int(tags["ResolutionUnit"].value), ""))
    return None


def of_ome(text: str) -> PixelSize | None:
    """What OME-XML says of its first image; the rest, such as a list of planes, is not parsed."""
    parser: Any = ElementTree.XMLPullParser(["start"])
    for start in range(0, len(text) + 1, _PIECE):
        parser.feed(text[start : start + _PIECE])
        if start + _PIECE > len(text):
            parser.close()
        for _, element in parser.read_events():
            if element.tag.rpartition("}")[2] == "Pixels":
                return _of_pixels(element.attrib)
    return None


def _of_pixels(attributes: Mapping[str, str]) -> PixelSize | None:
    units = {attributes.get(f"PhysicalSize{axis}Unit", "µm") for axis in "XY"}
    if len(units) > 1:
        return None
    return pixel_size(attributes.get("PhysicalSizeY"), attributes.get("PhysicalSizeX"), units.pop())


def of_multiscale(multiscale: Mapping[str, Any], level: int = 0) -> PixelSize | None:
    """What the metadata of an OME-Zarr say of its full-size image, or of another level."""
    with suppress(Exception):
        axes: Sequence[Any] = multiscale["axes"]
        scale = next(
            step["scale"]
            for step in multiscale["datasets"][level]["coordinateTransformations"]
            if step["type"] == "scale"
        )
        at = {axis["name"]: i for i, axis in enumerate(axes)}
        units = {axes[at[name]].get("unit", "") for name in "yx"}
        if len(units) == 1:
            return pixel_size(scale[at["y"]], scale[at["x"]], units.pop())
    return None


def _escaped(text: str) -> str:
    """ImageJ writes other letters than those of ASCII as \\u00B5."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\u" in text else text


def _ratio(value: Any) -> float:
    numerator, denominator = value
    return float(numerator) / float(denominator)
