"""The constant tables of an exported stack: trees, votes, filters and statistics, in the smallest types that fit."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.kernels.definition.gaussian import box_weights

LINE_LENGTH = 119


def initialiser(value: Any) -> str:
    """A number, or nested sequences of numbers, in C; float32 numbers keep every bit."""
    if isinstance(value, np.ndarray):  # a field of a record
        value = value.tolist()
    if isinstance(value, list | tuple):
        return "{" + ",".join(map(initialiser, value)) + "}"
    if isinstance(value, int):
        return str(value)
    digits = f"{value:.9g}"
    return digits + ("f" if "." in digits or "e" in digits else ".0f")


def real(value: float) -> str:
    """The float32 number nearest to a value, in C."""
    return initialiser(float(np.float32(value)))


@dataclass
class Tables:
    """Constant arrays as lines of C, their size in bytes, and the constants and types that the runtime needs with them.

    margin: the largest radius of a filter
    """

    lines: list[str] = field(default_factory=list)
    n_bytes: int = 0
    constants: dict[str, int | str] = field(default_factory=dict)
    types: dict[str, np.dtype] = field(default_factory=dict)
    margin: int = 0

    def add(self, name: str, array: np.ndarray, c_type: str = "float") -> None:
        """An array of numbers or records, with any number of axes."""
        if not array.size:
            array = np.zeros(1, array.dtype)  # C has no empty arrays
        self.n_bytes += array.nbytes
        shape = "".join(f"[{n}]" for n in array.shape)
        entries = [initialiser(entry) for entry in array.tolist()]
        self.lines.append(f"static const {c_type} {name}{shape} = {{")
        n = max(1, LINE_LENGTH // (1 + max(map(len, entries))))
        self.lines += [",".join(entries[i : i + n]) + "," for i in range(0, len(entries), n)]
        self.lines.append("};")

    def add_structs(self, name: str, c_type: str, entries: list[str]) -> None:
        """An array of structs that point to other tables."""
        self.lines += [f"static const {c_type} {name}[{len(entries)}] = {{", *(entry + "," for entry in entries), "};"]

    def add_kernel(self, name: str, weights: np.ndarray) -> str:
        """Add a filter's weights (1+R,) and return the struct that points to them."""
        self.add(name, weights.astype(np.float32))
        self.margin = max(self.margin, len(weights) - 1)
        return f"{{{len(weights) - 1},{name}}}"


@dataclass(frozen=True)
class _Numbered:
    """A forest whose S splits and V different rows of votes are numbered from 0 to S+V-1, splits first.

    root:   (T,)
    child:  (S,2), left and right
    used:   (S,J) bool, whether each probe is used
    planes: (P,2) channel and radius of each plane that a used probe reads
    plane:  (S,J) plane of each probe; 0 if it is not used
    votes:  (V,C)
    """

    forest: Forest
    root: np.ndarray
    child: np.ndarray
    used: np.ndarray
    planes: np.ndarray
    plane: np.ndarray
    votes: np.ndarray


def _numbered(forest: Forest) -> _Numbered:
    splits, leaves = np.flatnonzero(forest.is_split), np.flatnonzero(~forest.is_split)
    # Many leaves have the same votes, above all those of a single class.
    votes, row = np.unique(forest.votes[forest.leaf_index[leaves]], axis=0, return_inverse=True)
    number = np.empty(forest.n_nodes, np.int64)
    number[splits], number[leaves] = np.arange(len(splits)), len(splits) + row.reshape(-1)
    left = forest.left_child[splits]
    used = forest.weight[splits] != 0
    pairs = np.stack([forest.channel[splits], forest.radius[splits]], axis=-1)
    planes, place = np.unique(pairs[used], axis=0, return_inverse=True)
    plane = np.zeros(used.shape, np.int64)
    plane[used] = place.reshape(-1)
    child = np.stack([number[left], number[left + 1]], axis=-1)
    return _Numbered(forest, number[forest.root], child, used, planes, plane, votes)


def add_forests(tables: Tables, model: ForestStack) -> None:
    """Add the levels of a stack with their types and constants, and the statistics of its features."""
    tables.add("feature_mean", model.features.mean)
    tables.add("feature_scale", np.float32(1) / model.features.std)
    levels = [_numbered(forest) for forest in model.levels]
    outside = model.features.outside(model.n_classes)
    farthest = max(int(np.abs(forest.offset[..., 1:]).max()) + 1 for forest in model.levels)
    radii = sorted({0, *(int(radius) for level in levels for radius in level.planes[:, 1])})
    most_planes = max(1, *(len(level.planes) for level in levels))
    tables.types = {
        "node": np.min_scalar_type(max(len(level.child) + len(level.votes) for level in levels)),
        "plane": np.min_scalar_type(most_planes),
        "box": np.min_scalar_type(len(radii)),
        "channel": np.min_scalar_type(model.levels[-1].n_channels),
        "class": np.min_scalar_type(model.n_classes),
        # Offsets that will be stretched need not be whole.
        "offset": np.min_scalar_type(-farthest) if outside is None else np.dtype(np.float32),
    }
    n_probes = max(level.plane.shape[1] for level in levels)
    is_weighted = n_probes > 1 or any((level.forest.weight[level.forest.is_split] != 1).any() for level in levels)
    tables.constants |= {
        "WEIGHTED": int(is_weighted),
        "PROBES": n_probes,
        "SOFT": int(model.is_soft),
        "SOFTMAX": int(model.output == "softmax"),
        "STRETCHED": int(outside is not None),
        "BOXES": int(len(radii) > 1),
        "TOLERANCE": real(model.tolerance),
        "DEEPEST": max(int(forest.tree_depths.max()) for forest in model.levels),
        "MOST_PLANES": most_planes,
        "MOST_BOXES": max(int((level.planes[:, 1] > 0).sum()) for level in levels),
        "KEPT": min(model.n_levels - 1, 2),
    }
    if outside is not None:
        tables.add("outside", outside)
    if len(radii) > 1:
        boxes = [tables.add_kernel(f"box_{radius}", box_weights(radius)[0]) for radius in radii[1:]]
        tables.add_structs("boxes", "struct kernel", ["{0,NULL}", *boxes])
    tables.add_structs(
        "levels", "struct level", [_add_level(tables, k, level, radii) for k, level in enumerate(levels)]
    )


def _add_level(tables: Tables, k: int, level: _Numbered, radii: list[int]) -> str:
    """Add the tables of one level and return the struct that points to them."""
    types = tables.types
    tables.add(f"root_{k}", level.root.astype(types["node"]), "node_number")
    tables.add(f"split_{k}", _split_records(tables, level), "struct split")
    plane = np.dtype([("channel", types["channel"]), ("box", types["box"])], align=True)
    planes = np.zeros(len(level.planes), plane)
    planes["channel"], planes["box"] = level.planes[:, 0], np.searchsorted(radii, level.planes[:, 1])
    tables.add(f"plane_{k}", planes, "struct plane")
    row, voted = np.nonzero(level.votes)
    starts = np.searchsorted(row, np.arange(len(level.votes) + 1))
    tables.add(f"start_{k}", starts.astype(np.uint32), "uint32_t")
    tables.add(f"vote_class_{k}", voted.astype(types["class"]), "class_number")
    tables.add(f"vote_{k}", level.votes[row, voted].astype(np.float32))
    counts = f"{len(level.root)},{len(level.child)},{len(level.planes)}"
    return f"{{{counts},root_{k},split_{k},plane_{k},start_{k},vote_class_{k},vote_{k}}}"


def _split_records(tables: Tables, level: _Numbered) -> np.ndarray:
    """(S,) records with the memory layout of `struct split`."""
    types, forest = tables.types, level.forest
    weighted = [("weight", np.float32)] if tables.constants["WEIGHTED"] else []
    soft = [("sharpness", np.float32)] if tables.constants["SOFT"] else []
    probe = np.dtype([*weighted, ("offset", types["offset"], 2), ("plane", types["plane"])], align=True)
    n_probes = int(tables.constants["PROBES"])
    fields = [("threshold", np.float32), *soft, ("child", types["node"], 2), ("probe", probe, n_probes)]
    records = np.zeros(len(level.child), np.dtype(fields, align=True))
    records["threshold"] = forest.threshold[forest.is_split]
    records["child"] = level.child
    if forest.sharpness is not None:
        records["sharpness"] = forest.sharpness[forest.is_split]
    has = slice(level.used.shape[1])
    if weighted:
        records["probe"]["weight"][:, has] = forest.weight[forest.is_split]
    offset = forest.offset[forest.is_split][..., 1:]
    offset = offset if types["offset"].kind == "f" else np.floor(offset + np.float32(0.5))
    records["probe"]["offset"][:, has] = np.where(level.used[..., None], offset, 0)
    records["probe"]["plane"][:, has] = level.plane
    return records
