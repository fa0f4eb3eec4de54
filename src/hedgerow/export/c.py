"""A stack as a C99 file and its header, for small devices: a small fixed runtime, and the model as constant tables.

The runtime is the text of c_source/; a file contains the parts that its model needs. It computes in float32 in the same
order as the kernels, so that its labels are those of Python.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.errors import InputError
from hedgerow.export.c_tables import Tables, add_forests, initialiser, real
from hedgerow.export.kinds import Exported, entry_of, is_stretched, refuse_volumes
from hedgerow.features.bank import Bank
from hedgerow.features.depth import NUMBERS
from hedgerow.files import PathLike, atomic_path
from hedgerow.forest.arrays import ForestStack
from hedgerow.kernels.definition.outputs import CANCELLED, SMALLEST_SUM

COMPILE = "cc -std=c99 -O3 -ffp-contract=off"
LARGEST_SIDE = 2**24  # of an image: a position plus an offset still fits 32 bits
BOX_LINES = 2  # scratch memory of the averages over boxes
HARD_SPACE = "\u00a0"
ABOUT_STRETCH = """
 * stretch: (H,W) factor for the offsets at each pixel; for depth images, one over the depth in metres"""
MAX_C_NAME = 40  # characters
_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{MAX_C_NAME - 1}}}")
_FILE = re.compile(r"[\w .+-]+\.c")  # the code quotes the name of its header


@dataclass(frozen=True)
class FeatureCode:
    """A kind of feature that C can compute.

    file:     the text of c_source/ with `compute_features`
    tables:   adds the constant tables that it reads
    words:    the values of its own @words@
    smooths:  whether it uses the filters of smooth.c.in
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
    tables.constants["OPPONENT"] = int(features.opponent)


PARTS = {
    "bank": FeatureCode("bank.c.in", tables=_bank_tables, smooths=True, n_planes=3, n_lines=6),
    "channels": FeatureCode("channels.c.in"),
    "depth": FeatureCode("depth.c.in", words=lambda depth: {name: real(getattr(depth, name)) for name in NUMBERS}),
}


def export_c(model: AnyModel, path: PathLike, name: str | None = None, filters: bool = True) -> tuple[Path, Path]:
    """Write a stack as C to `path`, which ends in .c, and its header next to it; returns both paths.

    name:    the beginning of every public name in C; None: the name of the file
    filters: whether features are computed in C, too; otherwise the caller supplies them
    """
    source = Path(path)
    header = source.with_suffix(".h")
    if parts_of(model)[2] is not None:
        raise InputError(
            "only forests can be exported to C, but this is a network with a convolutional level; map it back to a "
            "forest with `hedgerow back`, or export it to ONNX."
        )
    if not isinstance(model, ForestStack):
        raise InputError("only forests can be exported to C; map this network back first: `hedgerow back`.")
    if name is None:
        name = name_of(source)
    if not _NAME.fullmatch(name):
        raise InputError(
            f"the name {name!r} cannot be used in C; give up to 40 letters, digits and underscores, beginning with a "
            "letter."
        )
    if not _FILE.fullmatch(source.name):
        raise InputError(
            f"cannot write {str(source)!r}; give a file name of letters, digits, spaces and _.+- that ends in .c."
        )
    model.validate()
    refuse_volumes(model)
    part = entry_of(model.features, PARTS, "C") if filters else None
    tables, words = Tables(), _words(model, name)
    if part is not None:
        part.tables(tables, model.features)
        words |= part.words(model.features)
    add_forests(tables, model)
    tables.constants |= _memory(model, tables, part)
    # Both files are complete before either gets its name.
    with atomic_path(source) as code, atomic_path(header) as declarations:
        code.write_text(_source(model, tables, words, header.name, part), encoding="utf-8", newline="\n")
        declarations.write_text(_header(model, tables, words, filters), encoding="utf-8", newline="\n")
    return source, header


def write(model: AnyModel, path: Path, filters: bool, name: str | None) -> Exported:
    """`export_c` with the arguments and the result that all exports have; name: None for the default"""
    files = export_c(model, path, name, filters)
    return Exported(files, f"{COMPILE} -c {shlex.quote(str(path))}", f"names begin with {name or name_of(path)}_")


def name_of(path: Path) -> str:
    """The prefix for the names in a file: "fac" for fac.c, "my_model_2" for "my model-2.c", "model_3" for 3.c."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", path.stem).strip("_")
    return (name if name[:1].isalpha() else f"model_{name}".rstrip("_"))[:MAX_C_NAME]


def _memory(model: ForestStack, tables: Tables, part: FeatureCode | None) -> dict[str, int | str]:
    """The size of the workspace: planes of an image's size, and lines of its width plus twice the margin."""
    feature_planes = 0 if part is None else model.features.n_features + is_stretched(model.features)
    held = int(tables.constants["KEPT"]) * model.n_classes + int(tables.constants["MOST_BOXES"])
    # The levels reuse the scratch memory of the features.
    return {
        "FEATURE_PLANES": feature_planes,
        "PLANES": feature_planes + max(held, part.n_planes if part else 0),
        "LINES": max(model.n_classes + BOX_LINES, part.n_lines if part else 0),
        "MARGIN": tables.margin,
        "LARGEST_SIDE": LARGEST_SIDE,
    }


def _words(model: ForestStack, name: str) -> dict[str, str]:
    """The values of the @words@ of c_source/."""
    features, has_stretch = model.features, is_stretched(model.features)
    fits_byte = min(model.classes) >= 0 and max(model.classes) <= 255
    return {
        "name": name,
        "NAME": name.upper(),
        "label": "uint8_t" if fits_byte else "int32_t",
        "n_levels": str(model.n_levels),
        "n_classes": str(model.n_classes),
        "n_inputs": str(features.n_inputs),
        "n_features": str(features.n_features),
        "receptive_field": str(model.receptive_field),
        "cancelled": real(CANCELLED),
        "smallest_sum": real(SMALLEST_SUM),
        "stretch_argument": " const float *stretch," if has_stretch else "",
        "about_stretch": ABOUT_STRETCH if has_stretch else "",
        "no_stretch": " !stretch ||" if has_stretch else "",
        "stretch": "stretch" if has_stretch else "NULL",
        "computed_stretch": f"features + {features.n_features} * size.pixels" if has_stretch else "NULL",
    }


def _text(file: str, words: dict[str, str]) -> str:
    """A text of c_source/, filled in."""
    text = resources.files("hedgerow.export").joinpath("c_source", file).read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", lambda match: words[match[1]], text)


def _source(model: ForestStack, tables: Tables, words: dict[str, str], header: str, part: FeatureCode | None) -> str:
    values = initialiser([int(value) for value in model.classes])
    has_smoothing = tables.constants["BOXES"] or (part and part.smooths)
    texts = [
        *(["smooth.c.in"] if has_smoothing else []),
        "probes.c.in",
        "soft.c.in" if model.is_soft else "hard.c.in",
        "levels.c.in",
        *([part.file, "predict.c.in"] if part else []),
    ]
    sections = [
        f'/* Written by `hedgerow export`; {header} describes the model and how to use it. */\n#include "{header}"',
        "#include <math.h>\n#include <string.h>",
        "/* The parts of the runtime that this model needs, and the sizes of its tables and its workspace. */\n"
        + "\n".join(f"#define {name} {value}" for name, value in sorted(tables.constants.items())),
        "\n".join(
            f"typedef {'float' if dtype.kind == 'f' else f'{dtype.name}_t'} {kind}_number;"
            for kind, dtype in tables.types.items()
        ),
        _text("types.c.in", words),
        f"const {words['name']}_label {words['name']}_class_values[{model.n_classes}] = {values};",
        "\n".join(tables.lines),
        *(_text(file, words) for file in texts),
    ]
    return "\n\n".join(section.strip("\n") for section in sections) + "\n"


def _header(model: ForestStack, tables: Tables, words: dict[str, str], filters: bool) -> str:
    n_trees = ", ".join(str(forest.n_trees) for forest in model.levels)
    splits = "soft" if model.is_soft else "hard"
    numbered = ", ".join(f"{f}: {name}".replace(" ", HARD_SPACE) for f, name in enumerate(model.features.names))
    about = [
        f"{model.n_levels} level(s) of {n_trees} trees with {splits} splits; {model.n_classes} classes.",
        f"Constant tables: {tables.n_bytes:,} bytes. "
        f"Workspace: {4 * int(tables.constants['PLANES']):,} bytes per pixel, and a few lines.",
        f"Features: {numbered}.",
    ]
    lines = [f" * {line}" for text in about for line in textwrap.wrap(text, 115, break_on_hyphens=False)]
    declarations = [*(["predict.h.in"] if filters else []), "features.h.in"]
    added = {
        "about": "\n".join(lines).replace(HARD_SPACE, " "),
        "declarations": "\n\n".join(_text(file, words).strip("\n") for file in declarations),
    }
    return _text("header.h.in", words | added)
