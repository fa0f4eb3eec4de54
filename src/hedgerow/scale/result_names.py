"""Names of large results: these endings name one result; any other name is a folder for many."""

from pathlib import Path

from hedgerow.errors import InputError

ENDINGS = (".ome.zarr", ".zarr", ".ome.tiff", ".ome.tif", ".tiff", ".tif")


def split_ending(output: str) -> tuple[str, str]:
    """A name and its ending; refuses one that is no kind of large result."""
    whole = output.rstrip("/")
    ending = next((name for name in ENDINGS if whole.lower().endswith(name)), None)
    if ending is None:
        raise InputError(f"cannot write {output}: the name of a large result must end in one of {', '.join(ENDINGS)}.")
    return whole[: -len(ending)], whole[-len(ending) :]


def is_large_result(output: str | Path) -> bool:
    """Whether the name is one large result rather than a folder."""
    return str(output).rstrip("/").lower().endswith(ENDINGS)
