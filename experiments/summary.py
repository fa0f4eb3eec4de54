"""What an experiment found, as tables and curves: for the report, for `tables.md`, and for people."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.choices import VARIANTS
from experiments.parts import LEAVES_TRIED, LEVELS, SPLITS_TRIED, STRIDES, sharpness_name
from experiments.protocols import READINGS
from hedgerow.report import Curve, Table

PAPERS = ("DF", "ConvNet", "MB1", "MB2")
MODELS = (*PAPERS, "fitted", "soft")
WORDS = {"mean_dice": "mean Dice", "foreground_accuracy": "foreground accuracy"}


@dataclass(frozen=True)
class Value:
    """Mean over seeds, standard deviation (0 for one seed), and how many there were."""

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
        """None where it was not run."""
        measure = measure or self.measure
        found = [row.get(measure) for row in self.rows if row["part"] == part and row["model"] == model]
        known = [value for value in found if value is not None]
        if not known:
            return None
        return Value(statistics.mean(known), statistics.stdev(known) if len(known) > 1 else 0.0, len(known))

    def cost(self, part: str, model: str, measure: str) -> Any:
        """Of the first seed: seconds of different seeds may come from different machines."""
        first = self.results["seeds"][0]
        for row in self.rows:
            if (row["part"], row["model"], row["seed"]) == (part, model, first):
                return None if "resumed" in row and measure == "train_seconds" else row.get(measure)
        return None

    def text(self, part: str, model: str, measure: str | None = None) -> str | None:
        found = self.value(part, model, measure)
        return None if found is None else str(found)

    def gain(self, part: str, model: str, measure: str | None = None) -> str | None:
        """Relative to the forests of the same part."""
        found, first = self.value(part, model, measure), self.value(part, "DF", measure)
        return None if found is None or not first or not first.mean else f"{found.mean / first.mean - 1:+.1%}"


def tables(results: dict[str, Any]) -> list[Table]:
    """All tables for which there are rows."""
    found = Findings(results)
    makers = (_papers_table, _costs, _splits, _readings, _inner, _sharpness, _levels, _strides, _choices, _others)
    return [table for table in (make(found) for make in makers) if table is not None]


def _seeds(found: Findings) -> str:
    seeds = found.results["seeds"]
    diverged = sorted({row["part"] for row in found.rows if "diverged" in row})
    warning = f" Refinement diverged in {', '.join(diverged)}; the last good network is shown." if diverged else ""
    if len(seeds) == 1:
        return f"One seed ({seeds[0]}).{warning}"
    return f"Mean and standard deviation over {len(seeds)} seeds, where there is a ±.{warning}"


def _papers_table(found: Findings) -> Table | None:
    reported = found.results["settings"]["paper"]["reported"]
    rows: list[tuple[str | None, ...]] = []
    if reported:
        rows.append(("in the paper, on its data", *(f"{reported[m]:.2f}" if m in reported else None for m in MODELS)))
    for part, name in (("paper", "here, the paper's settings"), ("own", "here, Hedgerow's settings")):
        if found.value(part, "DF") is None:
            continue
        rows.append((name, *(found.text(part, model) for model in MODELS)))
        rows.append(("gain over the DF", *(found.gain(part, model) for model in MODELS)))
        if found.measure != "mean_dice":  # which counts what is wrongly painted over the background as well
            rows.append(("the same in mean Dice", *(found.text(part, model, "mean_dice") for model in MODELS)))
            rows.append(("gain over the DF", *(found.gain(part, model, "mean_dice") for model in MODELS)))
    if len(rows) <= bool(reported):
        return None
    note = (
        f"{WORDS[found.measure]} on {found.results['settings']['scored on']}. {_seeds(found)} fitted: Map Back 2, then "
        "votes fitted together. soft: the exact map back of a fuzzy tree."
    )
    return Table("The paper's table", ("", *MODELS), tuple(rows), note)


def _costs(found: Findings) -> Table | None:
    rows = []
    for model in MODELS:
        seconds, size = found.cost("own", model, "train_seconds"), found.cost("own", model, "bytes")
        if size is None:
            continue
        # The processor's share of work on a GPU says nothing of it.
        is_cpu = found.cost("own", model, "device") == "cpu"
        each = found.cost("own", model, "cpu_ms_an_image" if is_cpu else "ms_an_image")
        where = "CPU" if is_cpu else "wall, GPU"
        differs = found.cost("own", model, "differs")
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
    columns = ("Hedgerow's settings", "seconds to train", "ms per image", "MB", "labelled otherwise")
    note = f"{_where(found)} Labelled otherwise: part of the pixels at which the forest differs from the network."
    return Table("What each model costs", columns, tuple(rows), note)


def _where(found: Findings) -> str:
    first = found.results["seeds"][0]
    devices = {row["device"] for row in found.rows if row["seed"] == first}
    return f"Seconds are of seed {first}, on {' and '.join(sorted(devices))}."


def _splits(found: Findings) -> Table | None:
    parts = {
        "own": "soft",
        "tanh": "tanh",
        "crelu": "crelu",
        "paper": "tanh, the paper's way",
        "paper-sparse": "the same, all edges train",
    }
    models = ("DF", "mapped", "relaxed", "ConvNet", "MB1", "MB2", "fitted", "soft")
    rows = [
        (name, *(found.text(part, model) for model in models))
        for part, name in parts.items()
        if found.value(part, "ConvNet") is not None
    ]
    if len(rows) < 2:
        return None
    note = (
        f"{WORDS[found.measure]}; mapped: the network before any training; relaxed: as its training begins, with "
        f"softer splits (the paper's begins as mapped). {_seeds(found)}"
    )
    return Table("Kinds of splits", ("split", *models), tuple(rows), note)


def _sharpness(found: Findings) -> Table | None:
    forests = found.text("sharpness", "DF")
    if forests is None:
        return None
    rows = tuple(
        (f"{split:g}", *(found.text("sharpness", sharpness_name(split, leaf)) for leaf in LEAVES_TRIED))
        for split in SPLITS_TRIED
    )
    columns = ("splits", *(f"leaves {leaf:g}" for leaf in LEAVES_TRIED))
    note = (
        f"{WORDS[found.measure]} of the paper's tanh network before any training, beside {forests} of the forests that "
        f"it was mapped from, by the sharpness of splits and leaves; the paper has 100 and 1. {_seeds(found)}"
    )
    return Table("Sharpness", columns, rows, note)


def _readings(found: Findings) -> Table | None:
    models = ("DF", "mapped", "ConvNet", "MB1", "MB2")
    rows = [
        (name, *(found.text(f"reading-{name}", model) for model in models), found.gain(f"reading-{name}", "ConvNet"))
        for name in READINGS
        if found.value(f"reading-{name}", "DF") is not None
    ]
    if not rows:
        return None
    note = (
        f"{WORDS[found.measure]} on {found.results['settings']['scored on']}. A leaf's activation is the sigmoid of z "
        "or (1 + tanh z) / 2; votes are shares of a leaf's samples or their counts; balanced cross-entropy is a mean "
        f"or a sum over classes. {_seeds(found)}"
    )
    return Table("Readings of the paper", ("leaf, votes, balance", *models, "gain of the ConvNet"), tuple(rows), note)


def _inner(found: Findings) -> Table | None:
    columns = {
        "Dice of the strongest class": "mean_dice",
        "correlation of neighbours": "neighbour_correlation",
        "share of the strongest class": "strongest_share",
        "negative values": "negative_share",
        "response one class away": "response_1",
        "two classes away": "response_2",
    }
    layers = list(dict.fromkeys(row["model"] for row in found.rows if row["part"] == "inner"))
    rows = [(layer, *(found.text("inner", layer, measure) for measure in columns.values())) for layer in layers]
    if not rows:
        return None
    note = (
        "Of the forests' levels and the layers of the network refined from them, with the paper's settings, on "
        f"{found.results['settings']['scored on']}. Responses are relative to that on a class's own pixels; one class "
        f"away: on pixels of the classes that touch it. {_seeds(found)}"
    )
    return Table("Inner layers", ("", *columns), tuple(rows), note)


def _levels(found: Findings) -> Table | None:
    n_levels = found.results["settings"]["hedgerow"]["stack"]["n_levels"]
    parts = sorted(
        [(f"levels-{n}", n) for n in LEVELS if n != n_levels] + [("own", n_levels)], key=lambda pair: pair[1]
    )
    rows = tuple(
        (str(n), found.text(part, "DF"), found.text(part, "ConvNet"), found.gain(part, "ConvNet"))
        for part, n in parts
        if found.value(part, "DF") is not None
    )
    if len(rows) < 2:
        return None
    return Table("Levels", ("levels", "DF", "ConvNet", "gain"), rows, f"{WORDS[found.measure]}. {_seeds(found)}")


def _strides(found: Findings) -> Table | None:
    rows = []
    for stride in STRIDES:
        part, seconds = f"stride-{stride}", found.cost(f"stride-{stride}", "ConvNet", "refine_seconds")
        if found.value(part, "ConvNet") is not None:
            scores = (found.text(part, "DF"), found.text(part, "ConvNet"), found.gain(part, "ConvNet"))
            rows.append((str(stride), *scores, None if seconds is None else f"{seconds:.0f}"))
    if not rows:
        return None
    note = (
        f"{WORDS[found.measure]} of networks refined on every n-th row and column, all training images and steps; the "
        f"paper has 9. {_seeds(found)} {_where(found)}"
    )
    return Table("Pixels that are trained on", ("n", "DF", "ConvNet", "gain", "seconds to refine"), tuple(rows), note)


def _choices(found: Findings) -> Table | None:
    known = {variant: f"choice-{variant}" for variant in VARIANTS if found.value(f"choice-{variant}", "level 1")}
    if not known:
        return None
    levels = [f"level {n}" for n in range(1, 21) if any(found.value(part, f"level {n}") for part in known.values())]
    rows = tuple((variant, *(found.text(part, level) for level in levels)) for variant, part in known.items())
    note = f"{WORDS[found.measure]} on {found.results['settings']['scored on']} after each level. {_seeds(found)}"
    return Table("Variants of the stack", ("variant", *levels), rows, note)


def _others(found: Findings) -> Table | None:
    reported = found.results["settings"]["paper"]["reported"]
    parts = (
        ("own", "DF"), ("own", "ConvNet"), ("best", "best"), ("unet", "U-Net"), ("fcn", "FCN"),
        ("vgg-own", "FCN of VGG16, own recipe"), ("vgg-paper", "FCN of VGG16, paper recipe"),
        ("alternating", "splits and votes in turn"),
        ("random-sparse", "random start, sparse"), ("random-full", "random start, full"),
    )  # fmt: skip
    rows: list[tuple[str | None, ...]] = []
    for part, model in parts:
        seconds = found.cost(part, model, "train_seconds")
        if found.value(part, model) is not None:
            said = f"{reported[model]:.2f}" if model in reported else None
            rows.append((model, found.text(part, model), None if seconds is None else f"{seconds:.0f}", said))
    if not any(row[0] not in PAPERS for row in rows):
        return None
    note = (
        f"{WORDS[found.measure]}. All from the same images; best: `train --effort best`; U-Net and FCN are trained "
        "from scratch (the paper took a pre-trained FCN), in the size and with the normalisation that are best on "
        "held-out images. A random start is the paper's network, of a smaller stack, without the forests' weights. "
        f"{_seeds(found)} {_where(found)}"
    )
    return Table("Against other networks", ("", "score", "seconds to train", "in the paper"), tuple(rows), note)


def curves(results: dict[str, Any]) -> list[Curve]:
    """The learning curve, if it was run."""
    found = Findings(results)
    n_all = results["settings"]["sizes"]["train"]
    counts = sorted({row["n_images"] for row in found.rows if "n_images" in row})
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for model, whole in (("DF", "own"), ("ConvNet", "own"), ("best", "best"), ("U-Net", "unet")):
        parts = [(n, f"images-{n}") for n in counts] + [(n_all, whole)]
        values = [(n, found.value(part, model)) for n, part in parts]
        points = [(float(n), value.mean, value.spread) for n, value in values if value is not None]
        if len(points) > 1:
            lines[model] = points
    if not lines:
        return []
    note = f"best: `train --effort best`; the U-Net is the best of its sizes on held-out images. {_seeds(found)}"
    return [Curve("Learning curve", "training images", WORDS[found.measure], lines, log_x=True, note=note)]


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
