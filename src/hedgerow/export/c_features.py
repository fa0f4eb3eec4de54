"""The kinds of feature that C can compute: which text of c_source/ does it, and what that needs beside."""

from collections.abc import Callable
from dataclasses import dataclass

from hedgerow.export.c_tables import Tables, real
from hedgerow.features.bank import Bank
from hedgerow.features.depth import Depth


@dataclass(frozen=True)
class FeatureCode:
    """A kind of feature in C.

    file:     the text of c_source/ that has `compute_features`
    tables:   adds the constant tables that it reads
    words:    what its own @words@ stand for
    smooths:  it uses the filters of smooth.c.in
    n_planes: planes of an image's size, n_lines: lines of its width, that it needs as scratch memory
    """

    file: str
    tables: Callable[..., None] = lambda tables, features: None
    words: Callable[..., dict[str, str]] = lambda features: {}
    smooths: bool = False
    n_planes: int = 0
    n_lines: int = 0


def _bank_tables(tables: Tables, features: Bank) -> None:
    """Statistics of the image's channels, and the filters of every scale."""
    tables.add("input_mean", features.input_mean)
    tables.add("input_std", features.input_std)
    proportions, scales = features.proportions, []
    for s, sigma in enumerate(features.sigmas):
        derivatives = proportions.weights(sigma)
        orders = [tables.add_kernel(f"order{k}_{s}", derivatives[k]) for k in range(3)]
        narrow = tables.add_kernel(f"narrow_{s}", proportions.weights(proportions.dog_ratio * sigma)[0])
        tensor = tables.add_kernel(f"tensor_{s}", proportions.weights(proportions.structure_ratio * sigma)[0])
        scales.append(f"{{{{{','.join(orders)}}},{narrow},{tensor}}}")
    tables.add_structs("scales", "struct scale", scales)
    tables.constants["SCALES"] = len(scales)


def _depth_words(features: Depth) -> dict[str, str]:
    return {name: real(getattr(features, name)) for name in ("depth_unit", "nearest", "background")}


PARTS = {
    "bank": FeatureCode("bank.c.in", tables=_bank_tables, smooths=True, n_planes=3, n_lines=6),
    "channels": FeatureCode("channels.c.in"),
    "depth": FeatureCode("depth.c.in", words=_depth_words),
}
