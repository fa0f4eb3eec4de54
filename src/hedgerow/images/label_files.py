"""Reads label maps, which hold class values, or one colour for each class."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hedgerow.errors import InputError, first_few
from hedgerow.files import PathLike
from hedgerow.images.array_checks import to_labels
from hedgerow.images.classes import MOST_PIXELS
from hedgerow.images.legend import FILE, Colour, Legend, hex_of, read_legend
from hedgerow.images.reading import ImageSource, open_image
from hedgerow.images.stored import ImageSpec, Pages
from hedgerow.progress import Say, quiet

MOST_NAMED = 8  # colours that a message lists
MOST_EXPLAINED = 24  # colours that are listed with their classes
WHITE = 0xFFFFFF
MAX_COLOURS = 64  # of one set of label maps; more suggest a photograph or smoothed edges


def read_labels(path: PathLike, pages: Pages = None, legend: Legend | None = None) -> np.ndarray:
    """Read a label map, (H,W) integers as in the file; whole numbers that are stored as floats become int32.

    With a palette, the values are its indices, not its colours.
    legend: the class of each colour in an RGB picture; None: the `classes.toml` beside the file, if there is one

    >>> np.save("labels.npy", np.eye(3))
    >>> hr.read_labels("labels.npy").dtype
    dtype('int32')
    """
    return read_frame_labels(ImageSpec(str(path), "labels", pages), 0, legend)


def read_frame_labels(spec: ImageSpec, frame: int, legend: Legend | None = None) -> np.ndarray:
    """`read_labels` of one time point; (Z,H,W) of a volume."""
    path = Path(spec.path)
    with open_image(**vars(spec)) as source:
        labels, has_colours = _read(list(source.each_frame())[frame])
    if has_colours:
        labels = _class_values(labels, legend_of_files([path]) if legend is None else legend, str(path))
    if labels.dtype.kind == "b":
        return labels.astype(np.uint8)
    return labels if labels.dtype.kind in "ui" else to_labels(labels, str(path), source.is_volume)


def read_label_set(files: Sequence[Path | ImageSpec], say: Say = quiet) -> tuple[list[np.ndarray], Legend]:
    """Read the label maps of a set, each (H,W) int32, with the names and colours of their classes; (Z,H,W) of volumes,
    and as many of a series as it has time points.

    Colours that no `classes.toml` explains are numbered: black is 0, or white if most pixels are white, and the others
    follow by frequency. Prints the class of each colour.
    """
    maps, palettes, paths, is_picture, is_volume = [], [], list[Path](), list[bool](), list[bool]()
    for file in files:
        spec = file if isinstance(file, ImageSpec) else ImageSpec(str(file), "labels")
        with open_image(**vars(spec)) as source:
            for frame in source.each_frame():
                labels, has_colours = _read(frame)
                maps.append(labels)
                is_picture.append(has_colours)
                is_volume.append(frame.is_volume)
                paths.append(Path(spec.path))
            palettes.append(source.stored.palette)
    legend = legend_of_files(paths, palettes)
    pictures = [labels for labels, has_colours in zip(maps, is_picture, strict=True) if has_colours]
    if pictures and not all(map(_is_grey, pictures)):
        if len(pictures) < len(maps):
            first, plain = paths[is_picture.index(True)], paths[is_picture.index(False)]
            raise InputError(
                f"{first} holds colours, but {plain} holds class numbers; save all labels in the same form."
            )
        legend = legend or _legend_of_colours(pictures, f"the labels in {paths[0].parent}")
        say(_colours_in_words(legend))
    for i, path in enumerate(paths):
        values = _class_values(maps[i], legend, str(path)) if is_picture[i] else maps[i]
        maps[i] = to_labels(values, str(path), is_volume[i])
    return maps, legend


def _colours_in_words(legend: Legend) -> str:
    """A sentence with the class of each colour."""
    named = [
        f"{hex_of(colour)} is class {value}{f' ({legend.names[value]})' if value in legend.names else ''}"
        for value, colour in legend.colours.items()
    ]
    more = f" and {len(named) - MOST_EXPLAINED} more" if len(named) > MOST_EXPLAINED else ""
    return f"label colours: {', '.join(named[:MOST_EXPLAINED])}{more}"


def legend_of_files(paths: Sequence[Path], palettes: Iterable[Mapping[int, Colour]] = ()) -> Legend:
    """Names and colours for label files: from the `classes.toml` in their folder, else from the first palette; an empty
    legend if there is neither."""
    for file in legend_files(paths):
        return read_legend(file)
    return Legend(colours=next(filter(None, palettes), {}))


def legend_files(paths: Iterable[Path]) -> list[Path]:
    """The `classes.toml` of each folder of label files that has one."""
    return [folder / FILE for folder in dict.fromkeys(path.parent for path in paths) if (folder / FILE).is_file()]


def _read(source: ImageSource) -> tuple[np.ndarray, bool]:
    """(H,W) values in the dtype of the file, or (Z,H,W) of a volume; or (H,W,3) uint8 colours, and True."""
    if source.ending in (".jpg", ".jpeg"):
        raise InputError(
            f"cannot use {source.path} as labels: JPEG compression changes class values; save them as PNG or TIFF."
        )
    labels = source.array()
    if source.shape[0] == 1:
        return labels, False
    colours = labels[..., :3]
    if not source.is_volume and labels.shape[2] in (3, 4) and (labels.dtype == np.uint8 or _is_grey(colours)):
        return (colours, True) if labels.dtype == np.uint8 else (np.ascontiguousarray(colours[..., 0]), False)
    raise InputError(
        f"cannot use {source.path} as labels: found {source.shape[0]} channels of {labels.dtype}, expected one class "
        "value or one 8-bit colour per pixel; save the labels as a PNG, or as a one-channel TIFF."
    )


def _is_grey(picture: np.ndarray) -> bool:
    """Whether all channels (H,W,3) are the same, as in a picture of class values."""
    return all(np.array_equal(picture[..., 0], picture[..., i]) for i in (1, 2))


def _colour_codes(labels: np.ndarray) -> np.ndarray:
    """(H,W) int32 from colours (H,W,3): 0xrrggbb."""
    parts = labels.astype(np.int32)
    return (parts[..., 0] << 16) | (parts[..., 1] << 8) | parts[..., 2]


def _legend_of_colours(maps: Iterable[np.ndarray], name: str) -> Legend:
    """The legend of coloured label maps (H,W,3): black is 0 if present, and the others follow in order of frequency.

    White is 0 instead if most pixels are white: a canvas, about which `unlabelled_value` asks as about any other 0.
    name: name of the label maps, for messages
    """
    counts: dict[int, int] = {}
    for labels in maps:
        codes, numbers = np.unique(_colour_codes(labels), return_counts=True)
        for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
            counts[code] = counts.get(code, 0) + number
        if len(counts) > MAX_COLOURS:
            raise InputError(
                f"{name} have more than {MAX_COLOURS} colours, expected one for each class: are the folders swapped, or"
                " were the labels smoothed at their edges or once saved as JPEG? Save them without smoothing, or as"
                " class numbers."
            )
    background = WHITE if counts.get(WHITE, 0) > MOST_PIXELS * sum(counts.values()) else 0
    order = sorted(counts, key=lambda code: (code != background, -counts[code], code))
    first = 0 if background in counts else 1
    return Legend(colours={first + i: _parts(code) for i, code in enumerate(order)})


def _class_values(labels: np.ndarray, legend: Legend, name: str) -> np.ndarray:
    """(H,W) class values of a picture (H,W,3), from the colours of a legend or, if these do not match, its greys."""
    by_code = {(r << 16) | (g << 8) | b: value for value, (r, g, b) in legend.colours.items()}
    codes = _colour_codes(labels)
    present = np.unique(codes)
    unknown = [code for code in present.tolist() if code not in by_code]
    if unknown and _is_grey(labels):
        return np.ascontiguousarray(labels[..., 0])
    if not by_code:
        raise InputError(
            f"cannot use {name} as labels: it holds colours of unknown classes; put a classes.toml with the value and"
            " colour of each class beside the labels, or save them as class numbers."
        )
    if unknown:
        expected = first_few([hex_of(colour) for colour in legend.colours.values()], MOST_NAMED)
        raise InputError(
            f"{name} has {len(unknown)} colour(s) that are not of a class, the first {hex_of(_parts(unknown[0]))};"
            f" expected {expected}."
        )
    values = np.array([by_code[code] for code in present.tolist()], np.int32)
    return values[np.searchsorted(present, codes)]


def _parts(code: int) -> tuple[int, int, int]:
    return code >> 16, code >> 8 & 255, code & 255
