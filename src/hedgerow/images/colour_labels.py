"""Label maps in which a class is a colour: (H,W,3) uint8, as painting programs write them."""

from collections.abc import Iterable

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.legend import Legend, hex_of

MOST_NAMED = 8  # colours in a message
MAX_COLOURS = 64  # of one set of label maps; more are a photograph, or smoothed edges


def colour_codes(labels: np.ndarray) -> np.ndarray:
    """(H,W) int32 from colours (H,W,3): 0xrrggbb."""
    parts = labels.astype(np.int32)
    return (parts[..., 0] << 16) | (parts[..., 1] << 8) | parts[..., 2]


def legend_of_colours(maps: Iterable[np.ndarray], what: str) -> Legend:
    """The legend of coloured label maps (H,W,3): black is 0 if it is there, the others follow in order of frequency.

    what: the label maps, for messages
    """
    counts: dict[int, int] = {}
    for labels in maps:
        codes, numbers = np.unique(colour_codes(labels), return_counts=True)
        for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
            counts[code] = counts.get(code, 0) + number
        if len(counts) > MAX_COLOURS:
            raise InputError(
                f"{what} have more than {MAX_COLOURS} colours, expected one for each class: are the folders swapped, or"
                " the labels smoothed at their edges, or saved as JPEG before? Save them without smoothing, or as"
                " class numbers."
            )
    order = sorted(counts, key=lambda code: (code != 0, -counts[code], code))
    first = 0 if 0 in counts else 1
    return Legend(colours={first + i: _parts(code) for i, code in enumerate(order)})


def has_only(labels: np.ndarray, legend: Legend) -> bool:
    """Whether each colour (H,W,3) is that of a class."""
    return set(np.unique(colour_codes(labels)).tolist()) <= _by_code(legend).keys()


def class_values(labels: np.ndarray, legend: Legend, name: str) -> np.ndarray:
    """(H,W) int32 class values of colours (H,W,3), by the colours of a legend."""
    by_code = _by_code(legend)
    if not by_code:
        raise InputError(
            f"cannot use {name} as labels: it holds colours, and nothing says which class each one is; put a"
            " classes.toml with value and colour of each class beside the labels, or save them as class numbers"
        )
    codes = colour_codes(labels)
    present = np.unique(codes)
    unknown = [code for code in present.tolist() if code not in by_code]
    if unknown:
        known = [hex_of(colour) for colour in legend.colours.values()]
        expected = ", ".join(known[:MOST_NAMED]) + (" ..." if len(known) > MOST_NAMED else "")
        raise InputError(
            f"{name} has {len(unknown)} colour(s) that are no class, the first {hex_of(_parts(unknown[0]))}; expected"
            f" {expected}"
        )
    values = np.array([by_code[code] for code in present.tolist()], np.int32)
    return values[np.searchsorted(present, codes)]


def _by_code(legend: Legend) -> dict[int, int]:
    """Colour code -> class value."""
    return {(r << 16) | (g << 8) | b: value for value, (r, g, b) in legend.colours.items()}


def _parts(code: int) -> tuple[int, int, int]:
    return code >> 16, code >> 8 & 255, code & 255
