"""Names of large results: a name with one of these endings is one result, any other name a folder for many.

A module of its own, because the command line needs it and must start at once.
"""

from pathlib import Path

from hedgerow.errors import InputError

RESULT_ENDINGS = (".ome.zarr", ".zarr", ".ome.tiff", ".ome.tif", ".tiff", ".tif")


def split_ending(output: str) -> tuple[str, str]:
    """A name split into stem and ending; refuses names that have none of the endings."""
    whole = output.rstrip("/")
    ending = next((name for name in RESULT_ENDINGS if whole.lower().endswith(name)), None)
    if ending is None:
        raise InputError(
            f"cannot write {output}: the name of a large result must end in one of {', '.join(RESULT_ENDINGS)}."
        )
    return whole[: -len(ending)], whole[-len(ending) :]


def is_large_result(output: str | Path) -> bool:
    """Whether this is the name of one large result rather than of a folder."""
    return str(output).rstrip("/").lower().endswith(RESULT_ENDINGS)
