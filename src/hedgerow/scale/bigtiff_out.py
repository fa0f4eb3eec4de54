"""Writes a finished result as a tiled BigTIFF with its pyramid and OME metadata, tile by tile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.files import atomic_path
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import colour_tag, ome_tiff
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report
from hedgerow.scale.large_results import LargeResult
from hedgerow.scale.ome_zarr_out import array_of
from hedgerow.scale.shards import CHUNK_SIDE, ShardGrid


def write(result: LargeResult, grid: ShardGrid, pixel: VoxelSize | None, model: Model, report: Report) -> None:
    """Write the levels of a result's Zarr as one file, whole or not at all."""
    import tifffile

    with atomic_path(Path(result.path)) as temporary, tifffile.TiffWriter(temporary, bigtiff=True, ome=True) as tiff:
        for level in range(grid.n_levels):
            array = array_of(result, level)
            settings: dict[str, Any] = {
                "shape": array.shape,
                "dtype": array.dtype,
                "tile": (CHUNK_SIDE, CHUNK_SIDE),
                "compression": "zlib",
                "photometric": "minisblack",
            }
            if level:
                tiff.write(_tiles(array), subfiletype=1, metadata=None, **settings)
                continue
            if result.content == "labels" and result.dtype == "uint8":
                settings["extratags"] = [colour_tag(model.legend.palette(model.classes))]
            settings |= ome_tiff("YX" if result.n_channels is None else "CYX", result.names, pixel)
            tiff.write(_tiles(array), subifds=grid.n_levels - 1, **settings)
            report("writing TIFF", level + 1, grid.n_levels)


def _tiles(array: Any) -> Iterator[np.ndarray]:
    """Tiles (h,w), plane after plane, row after row; each row of tiles is read at once."""
    height, width = array.shape[-2:]
    for at in np.ndindex(array.shape[:-2]):
        for top in range(0, height, CHUNK_SIDE):
            rows = np.asarray(array[(*at, slice(top, min(top + CHUNK_SIDE, height)), slice(None))])
            for left in range(0, width, CHUNK_SIDE):
                yield np.ascontiguousarray(rows[:, left : left + CHUNK_SIDE])
