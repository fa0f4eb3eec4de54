"""The cost of reading an image in parts, estimated from its metadata before anything is read."""

from hedgerow.errors import InputError
from hedgerow.images.file_checks import number_from_environment
from hedgerow.images.reading import ImageSource
from hedgerow.images.regions import Region

MEGAPIXELS = "HEDGEROW_MAX_LARGE_MEGAPIXELS"
DEFAULT_LARGE_MEGAPIXELS = 1_000_000
_PIXELS_PER_DAY = 86_400 * 1e6  # a rough estimate: two levels of 16 trees on the default features, one core


def refuse_endless(image: ImageSource, part: Region) -> None:
    """Raise InputError if a part of an image that will be read has more pixels or chunks than the limits."""
    megapixels = part.height * part.width / 1e6
    limit = number_from_environment(MEGAPIXELS, DEFAULT_LARGE_MEGAPIXELS, "2e6 for images of two million megapixels")
    if megapixels > limit:
        raise InputError(
            f"cannot read {image.name}: {part.height:,} x {part.width:,} pixels are {megapixels:,.10g} megapixels,"
            f" about {_days(part)} of work for one core, and more than the limit of {limit:,.10g}; choose a part of it"
            f" (--region) or a smaller level (--level), or raise the limit by the environment variable {MEGAPIXELS}."
        )
    image.check_chunks(part)


def _days(part: Region) -> str:
    days = part.height * part.width / _PIXELS_PER_DAY
    return f"{days / 365:,.2g} years" if days > 730 else f"{days:,.1f} days"
