"""The results of an experiment as tables and curves, for the report and `tables.md`."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.choices import VARIANTS
from experiments.parts import (
    LEAVES_TRIED,
    LEVELS,
    PENALTIES,
    SPLITS_TRIED,
    STRIDES,
    penalised_name,
    sharpness_name,
)
from experiments.protocols import READINGS
from hedgerow.report import Curve, Table

PAPERS = ("DF", "ConvNet", "MB1", "MB2")
MODELS = (*PAPERS, "fitted", "soft")
WORDS = {"mean_dice": "mean Dice", "foreground_accuracy": "foreground accuracy"}


@dataclass(frozen=True)
class Value:
    """Mean over seeds, standard deviation (0 for one seed), and number of seeds."""

    mean: float
    spread: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.spread:.3f}" if self.n > 1 else f"{self.mean:.3f}"


class Findings:
    """The rows of an experiment, by part and model."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results
        self.measure = results["settings"]["measure"]
        self.rows = results["rows"]

    def value(self, part: str, model: str, measure: str | None = None) -> Value | None:
        """The value of a measure; None: it was not run."""
        measure = measure or self.measure
        found = [row.get(measure) for row in self.rows if row["part"] == part and row["model"] == model]
        known = [value for value in found if value is not None]
        if not known:
            return None
        return Value(statistics.mean(known), statistics.stdev(known) if len(known) > 1 else 0.0, len(known))

    def cost(self, part: str, model: str, measure: str) -> Any:
        """The cost in the run of the first seed, because other seeds may have run on other machines."""
        first = self.results["seeds"][0]
        for row in self.rows:
            if (row["part"], row["model"], row["seed"]) == (part, model, first):
                return None if "resumed" in row and measure == "train_seconds" else row.get(measure)
        return None

    def text(self, part: str, model: str, measure: str | None = None) -> str | None:
        value = self.value(part, model, measure)
        return None if value is None else str(value)

    def gain(self, part: str, model: str, measure: str | None = None) -> str | None:
        """Relative to the forests of the same part."""
        value, first = self.value(part, model, measure), self.value(part, "DF", measure)
        return None if value is None or not first or not first.mean else f"{value.mean / first.mean - 1:+.1%}"


def tables(results: dict[str, Any]) -> list[Table]:
    """All tables for which there are rows."""
    findings = Findings(results)
    makers = (
        _papers_table, _costs, _board, _splits, _mappings, _penalties, _readings, _inner, _sharpness, _levels, _strides,
        _choices, _others,
    )  # fmt: skip
    return [table for table in (make(findings) for make in makers) if table is not None]


def _seeds(findings: Findings) -> str:
    seeds = findings.results["seeds"]
    diverged = sorted({row["part"] for row in findings.rows if "diverged" in row})
    warning = f" Refinement diverged in {', '.join(diverged)}; the last good network is shown." if diverged else ""
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}).{warning}"
    return f"Mean and standard deviation over {len(seeds)} seeds, where there is a ±.{warning}"


def _papers_table(findings: Findings) -> Table | None:
    reported = findings.results["settings"]["paper"]["reported"]
    rows: list[tuple[str | None, ...]] = []
    if reported:
        rows.append(("in the paper, on its data", *(f"{reported[m]:.2f}" if m in reported else None for m in MODELS)))
    for part, name in (("paper", "here, the paper's settings"), ("own", "here, Hedgerow's settings")):
        if findings.value(part, "DF") is None:
            continue
        rows.append((name, *(findings.text(part, model) for model in MODELS)))
        rows.append(("gain over the DF", *(findings.gain(part, model) for model in MODELS)))
        if findings.measure != "mean_dice":  # it also counts errors in the background
            rows.append(("the same, in mean Dice", *(findings.text(part, model, "mean_dice") for model in MODELS)))
            rows.append(("gain over the DF", *(findings.gain(part, model, "mean_dice") for model in MODELS)))
    if len(rows) <= bool(reported):
        return None
    note = (
        f"{WORDS[findings.measure]} on {findings.results['settings']['scored on']}. {_seeds(findings)} "
        "fitted: Map Back 2, then votes fitted together. soft: the exact map back of a fuzzy tree."
    )
    return Table("The paper's table", ("", *MODELS), tuple(rows), note)


def _costs(findings: Findings) -> Table | None:
    rows = []
    for model in MODELS:
        seconds, size = findings.cost("own", model, "train_seconds"), findings.cost("own", model, "bytes")
        if size is None:
            continue
        # On a GPU, the CPU time says little about the cost.
        is_cpu = findings.cost("own", model, "device") == "cpu"
        each = findings.cost("own", model, "cpu_ms_an_image" if is_cpu else "ms_an_image")
        where = "CPU" if is_cpu else "wall, GPU"
        differs = findings.cost("own", model, "differs")
        rows.append(
            (
                model,
                None if seconds is None else f"{seconds:.0f}",
                f"{each:,.0f} ({where})",
                f"{size / 1e6:.2f}",
                None if differs is None else f"{differs:.2%}",
            )
        )
    if not rows:
        return None
    columns = ("Hedgerow's settings", "seconds to train", "ms per image", "MB", "pixels that differ")
    note = f"{_where(findings)} Pixels that differ: fraction of pixels that forest and network label differently."
    return Table("Cost of each model", columns, tuple(rows), note)


def _board(findings: Findings) -> Table | None:
    models = list(dict.fromkeys(row["model"] for row in findings.rows if row["part"] == "cost"))
    if not models:
        return None

    def text(model: str, measure: str, digits: int = 0) -> str | None:
        value = findings.value("cost", model, measure)
        return None if value is None else f"{value.mean:,.{digits}f}"

    rows = tuple(
        (
            model,
            findings.text("cost", model, "mean_dice"),
            text(model, "operations"),
            text(model, "us_a_pixel", 1),
            text(model, "c_us_a_pixel", 1),
            text(model, "c_instructions"),
        )
        for model in models
    )
    columns = (
        "", "mean Dice", "operations per pixel", "CPU microseconds per pixel, Python", "the same, C",
        "instructions per pixel, C",
    )  # fmt: skip
    note = (
        "One thread. Operations: of splits, leaves and votes, by the definition of the model, without the features. "
        f"Instructions: of the exported C code, features included, counted by valgrind. {_seeds(findings)}"
    )
    return Table("Cost on a small board", columns, rows, note)


def _where(findings: Findings) -> str:
    first = findings.results["seeds"][0]
    devices = {row["device"] for row in findings.rows if row["seed"] == first}
    return f"Seconds are from seed {first}, on {' and '.join(sorted(devices))}."


MAPPED = ("DF", "mapped", "relaxed", "ConvNet", "MB1", "MB2", "fitted", "soft")


def _rows(findings: Findings, parts: dict[str, str], models: Sequence[str]) -> list[tuple[str | None, ...]]:
    """A row of the models' scores for each part that was run, by the row's name."""
    return [
        (name, *(findings.text(part, model) for model in models))
        for name, part in parts.items()
        if findings.value(part, "ConvNet") is not None
    ]


def _splits(findings: Findings) -> Table | None:
    parts = {
        "soft": "own",
        "tanh": "tanh",
        "crelu": "crelu",
        "tanh, the paper's way": "paper",
        "the same, training all edges": "paper-sparse",
    }
    rows = _rows(findings, parts, MAPPED)
    if len(rows) < 2:
        return None
    note = (
        f"{WORDS[findings.measure]}; mapped: the network before training; relaxed: at the start of training, with "
        f"softer splits (the paper's starts as mapped). {_seeds(findings)}"
    )
    return Table("Kinds of splits", ("split", *MAPPED), tuple(rows), note)


def _mappings(findings: Findings) -> Table | None:
    rows = _rows(findings, {split: f"mapping-{split}" for split in ("tanh", "soft", "crelu")}, MAPPED)
    if not rows:
        return None
    n_steps = findings.results["settings"]["hedgerow"]["refine"]["n_steps"]
    note = (
        f"{WORDS[findings.measure]}. The paper's forests, mapped with each kind of split and refined by Hedgerow's "
        f"settings for {n_steps:,} steps. {_seeds(findings)}"
    )
    return Table("Kinds of splits from the paper's forests", ("split", *MAPPED), tuple(rows), note)


def _penalties(findings: Findings) -> Table | None:
    models = ("ConvNet", "MB1", "MB2", "fitted", "soft")
    known = [("own", "soft", "none"), ("tanh", "tanh", "none")]
    for penalty, split in (("leaf_l1", "tanh"), ("leaf_entropy", "soft")):
        known += [(penalised_name(penalty, weight), split, f"{penalty} {weight:g}") for weight in PENALTIES]
    rows = [
        (split, about, *(findings.text(part, model) for model in models))
        for part, split, about in sorted(known, key=lambda row: row[1])
        if findings.value(part, "ConvNet") is not None
    ]
    if all(row[1] == "none" for row in rows):
        return None
    note = (
        f"{WORDS[findings.measure]}. leaf_l1: the sum of leaf activations; leaf_entropy: the entropy of leaf "
        f"membership; each times its weight is added to the loss of Hedgerow's settings. {_seeds(findings)}"
    )
    return Table("Penalties on leaves", ("split", "penalty", *models), tuple(rows), note)


def _sharpness(findings: Findings) -> Table | None:
    forests = findings.text("sharpness", "DF")
    if forests is None:
        return None
    rows = tuple(
        (f"{split:g}", *(findings.text("sharpness", sharpness_name(split, leaf)) for leaf in LEAVES_TRIED))
        for split in SPLITS_TRIED
    )
    columns = ("splits", *(f"leaves {leaf:g}" for leaf in LEAVES_TRIED))
    note = (
        f"{WORDS[findings.measure]} of the paper's tanh network before any training, beside {forests} of the forests "
        f"that it was mapped from, by the sharpness of splits and leaves; the paper has 100 and 1. {_seeds(findings)}"
    )
    return Table("Sharpness", columns, rows, note)


def _readings(findings: Findings) -> Table | None:
    models = ("DF", "mapped", "ConvNet", "MB1", "MB2")
    known = {name: f"reading-{name}" for name in READINGS if findings.value(f"reading-{name}", "DF") is not None}
    rows = [
        (name, *(findings.text(part, model) for model in models), findings.gain(part, "ConvNet"))
        for name, part in known.items()
    ]
    if not rows:
        return None
    note = (
        f"{WORDS[findings.measure]} on {findings.results['settings']['scored on']}. A leaf's activation is the "
        "sigmoid of z or (1 + tanh z) / 2; votes are shares of a leaf's samples or their counts; balanced "
        f"cross-entropy is a mean or a sum over classes. {_seeds(findings)}"
    )
    return Table("Readings of the paper", ("leaf, votes, balance", *models, "gain of the ConvNet"), tuple(rows), note)


def _inner(findings: Findings) -> Table | None:
    columns = {
        "Dice of the strongest class": "mean_dice",
        "correlation of neighbours": "neighbour_correlation",
        "share of the strongest class": "strongest_share",
        "negative values": "negative_share",
        "response one class away": "response_1",
        "two classes away": "response_2",
    }
    layers = list(dict.fromkeys(row["model"] for row in findings.rows if row["part"] == "inner"))
    rows = [(layer, *(findings.text("inner", layer, measure) for measure in columns.values())) for layer in layers]
    if not rows:
        return None
    note = (
        "Of the forests' levels and the layers of the network refined from them, with the paper's settings, on "
        f"{findings.results['settings']['scored on']}. Responses are relative to that on a class's own pixels; one "
        f"class away: on pixels of the classes that touch it. {_seeds(findings)}"
    )
    return Table("Inner layers", ("", *columns), tuple(rows), note)


def _levels(findings: Findings) -> Table | None:
    n_levels = findings.results["settings"]["hedgerow"]["stack"]["n_levels"]
    parts = sorted(
        [(f"levels-{n}", n) for n in LEVELS if n != n_levels] + [("own", n_levels)], key=lambda pair: pair[1]
    )
    rows = tuple(
        (str(n), findings.text(part, "DF"), findings.text(part, "ConvNet"), findings.gain(part, "ConvNet"))
        for part, n in parts
        if findings.value(part, "DF") is not None
    )
    if len(rows) < 2:
        return None
    return Table("Levels", ("levels", "DF", "ConvNet", "gain"), rows, f"{WORDS[findings.measure]}. {_seeds(findings)}")


def _strides(findings: Findings) -> Table | None:
    rows = []
    for stride in STRIDES:
        part, seconds = f"stride-{stride}", findings.cost(f"stride-{stride}", "ConvNet", "refine_seconds")
        if findings.value(part, "ConvNet") is not None:
            scores = (findings.text(part, "DF"), findings.text(part, "ConvNet"), findings.gain(part, "ConvNet"))
            rows.append((str(stride), *scores, None if seconds is None else f"{seconds:.0f}"))
    if not rows:
        return None
    note = (
        f"{WORDS[findings.measure]} of networks refined on every n-th row and column, all training images and steps; "
        f"the paper has 9. {_seeds(findings)} {_where(findings)}"
    )
    return Table("Pixels used for training", ("n", "DF", "ConvNet", "gain", "seconds to refine"), tuple(rows), note)


def _choices(findings: Findings) -> Table | None:
    known = {variant: f"choice-{variant}" for variant in VARIANTS if findings.value(f"choice-{variant}", "level 1")}
    if not known:
        return None
    levels = [f"level {n}" for n in range(1, 21) if any(findings.value(part, f"level {n}") for part in known.values())]
    rows = tuple((variant, *(findings.text(part, level) for level in levels)) for variant, part in known.items())
    note = (
        f"{WORDS[findings.measure]} on {findings.results['settings']['scored on']} after each level. {_seeds(findings)}"
    )
    return Table("Variants of the stack", ("variant", *levels), rows, note)


def _others(findings: Findings) -> Table | None:
    reported = findings.results["settings"]["paper"]["reported"]
    parts = (
        ("own", "DF"), ("own", "ConvNet"), ("best", "best"), ("unet", "U-Net"), ("fcn", "FCN"),
        ("vgg-own", "FCN of VGG16, own recipe"), ("vgg-paper", "FCN of VGG16, paper recipe"),
        ("alternating", "splits and votes in turn"),
        ("random-sparse", "random start, sparse"), ("random-full", "random start, full"),
    )  # fmt: skip
    rows: list[tuple[str | None, ...]] = []
    for part, model in parts:
        seconds = findings.cost(part, model, "train_seconds")
        if findings.value(part, model) is not None:
            reported_score = f"{reported[model]:.2f}" if model in reported else None
            rows.append(
                (model, findings.text(part, model), None if seconds is None else f"{seconds:.0f}", reported_score)
            )
    if not any(row[0] not in PAPERS for row in rows):
        return None
    note = (
        f"{WORDS[findings.measure]}. All from the same images; best: `train --effort best`; U-Net and FCN are trained "
        "from scratch (the paper took a pre-trained FCN), in the size and with the normalisation that are best on "
        "held-out images. A random start is the paper's network, of a smaller stack, without the forests' weights. "
        f"{_seeds(findings)} {_where(findings)}"
    )
    return Table("Comparison with other networks", ("", "score", "seconds to train", "in the paper"), tuple(rows), note)


CURVE_LINES = {  # name: part and model of all images, and those of n of them
    "DF": (("own", "DF"), ("images", "DF")),
    "ConvNet": (("own", "ConvNet"), ("images", "ConvNet")),
    "DF, paper": (("paper", "DF"), ("images", "DF, paper")),
    "ConvNet, paper": (("paper", "ConvNet"), ("images", "ConvNet, paper")),
    "random start": (("random-sparse", "random start, sparse"), ("images", "random start, sparse")),
    "best": (("best", "best"), ("best", "best")),
    "U-Net": (("unet", "U-Net"), ("images", "U-Net")),
    "FCN": (("fcn", "FCN"), ("images", "FCN")),
}


def curves(results: dict[str, Any]) -> list[Curve]:
    """The learning curve, if its parts were run."""
    findings = Findings(results)
    n_all = results["settings"]["sizes"]["train"]
    counts = sorted({row["n_images"] for row in findings.rows if "n_images" in row})
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for name, (whole, (part, model)) in CURVE_LINES.items():
        values = [(n, findings.value(f"{part}-{n}", model)) for n in counts] + [(n_all, findings.value(*whole))]
        points = [(float(n), value.mean, value.spread) for n, value in values if value is not None]
        if len(points) > 1:
            lines[name] = points
    if not lines:
        return []
    note = (
        "best: `train --effort best`; U-Net and FCN are the best of their sizes on held-out images. DF and ConvNet: by "
        f"Hedgerow's settings, or the paper's. {_seeds(findings)}"
    )
    return [Curve("Learning curve", "training images", WORDS[findings.measure], lines, log_x=True, note=note)]


def markdown(tables: Sequence[Table], curves: Sequence[Curve]) -> str:
    """Tables, and curves as tables of their points."""
    parts = []
    for table in tables:
        parts.append(_markdown_table(table.title, table.columns, table.rows, table.note))
    for curve in curves:
        places = sorted({x for line in curve.lines.values() for x, _, _ in line})
        rows = []
        for name, line in curve.lines.items():
            at = {x: Value(y, spread, 2 if spread else 1) for x, y, spread in line}
            rows.append((name, *(str(at[x]) if x in at else None for x in places)))
        columns = (curve.x_label, *(f"{x:g}" for x in places))
        parts.append(_markdown_table(f"{curve.title} ({curve.y_label})", columns, rows, curve.note))
    return "\n".join(parts)


def _markdown_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str) -> str:
    lines = [f"### {title}", "", "| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join("–" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", note, ""])
