"""Names of large results: a name with such an ending is one result, any other one a folder for many."""

from pathlib import Path

from hedgerow.errors import InputError

ENDINGS = (".ome.zarr", ".zarr", ".ome.tiff", ".ome.tif", ".tiff", ".tif")


def split_ending(output: str) -> tuple[str, str]:
    """A name and its ending; refuses one that is no kind of large result."""
    ending = next((one for one in ENDINGS if output.rstrip("/").lower().endswith(one)), None)
    if ending is None:
        raise InputError(f"cannot write {output}: a large result is {', '.join(ENDINGS)}; give such a name.")
    whole = output.rstrip("/")
    return whole[: -len(ending)], whole[-len(ending) :]


def is_large_result(output: str | Path) -> bool:
    """Whether a name is that of one large result, and not that of a folder for many."""
    return any(str(output).rstrip("/").lower().endswith(one) for one in ENDINGS)
