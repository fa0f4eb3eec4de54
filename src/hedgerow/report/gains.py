"""Sections on the contributions to a model's score: its levels, its convolutional members, and its refinement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hedgerow.deep.any_model import parts_of
from hedgerow.deep.record import ENSEMBLE, held_out_words
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.history import Check, Refinement
from hedgerow.images.metrics import MEANS, Scores
from hedgerow.report.charts import Line, line_chart
from hedgerow.report.formatting import counted, joined_words
from hedgerow.report.measure import MeasuredModel, same_stack
from hedgerow.report.sections import Comparison, ReportTable, Section

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import Member

Cells = tuple[str | float | int | None, ...]
MEMBER_COLUMNS = ("level or member", *MEANS.values(), "weight", "held-out Dice")
REFINEMENT_SCORES = {"stack": "its forests", "mapped": "the network before", "refined": "the network after"}


def per_level(comparison: Comparison) -> list[Section]:
    """The score after each level, of models with more than one."""
    models = [model for model in comparison.models if model.model.n_levels > 1]
    if not models:
        return []
    dice = {model.name: [scores.mean_dice for scores in model.per_level] for model in models}
    lines: dict[str, Line] = {
        model.name: [(level, value, 0.0) for level, value in enumerate(dice[model.name], 1)][
            n_shared_levels(model, comparison.models) :
        ]
        for model in models
    }
    values = "; ".join(f"{name} {', '.join(f'{value:.3f}' for value in row)}" for name, row in dice.items())
    alt = f"Mean Dice on the test images after each level: {values}"
    chart = line_chart(lines, "level", "mean Dice", alt, comparison.colours)
    text = f"Each level after the first also reads the predictions of the one before. Mean Dice after each: {values}."
    return [Section("levels", "What each level adds", text, (chart,), chart.key)]


def n_shared_levels(model: MeasuredModel, models: Sequence[MeasuredModel]) -> int:
    """How many points of a deep stack's line would repeat that of its network, if that is among the models."""
    n_levels = model.model.n_levels - 1
    below = [scores.mean_dice for scores in model.per_level[:n_levels]]
    has_network = any([scores.mean_dice for scores in other.per_level] == below for other in models)
    return n_levels - 1 if model.members and has_network else 0


def per_member(comparison: Comparison) -> list[Section]:
    """The scores of the levels and of the members of deep stacks."""
    tables = [members_table(model, comparison.models) for model in comparison.models if model.members]
    if not tables:
        return []
    text = (
        "The last level of a deep stack is convolutional: its output is the weighted mean of its members' predictions. "
        "The table scores each level and each member alone on the images of this page."
    )
    return [Section("members", "What the convolutional level adds", text, tables=tables)]


def members_table(model: MeasuredModel, models: Sequence[MeasuredModel]) -> ReportTable:
    """The scores of a deep stack's forests (if they are among the models), network and members, and of all together."""
    deep = parts_of(model.model)[2]
    assert deep is not None
    of_level, record = deep.members, deep.record
    together = _row("all together", model.scores, 1.0, record.scores.get(ENSEMBLE))
    note = " ".join(
        [
            *(
                f"{member.name.capitalize()}: {counted(member.n_networks, 'U-Net')} on {member.reads}."
                for member in of_level
                if member.n_networks
            ),
            "The weight is that of a member in the mean; the network contributes its last level. Held-out Dice was "
            f"measured during training, on {held_out_words(record.held, record.n_held)}, each predicted by "
            "networks that had not seen it.",
        ]
    )
    rows = (*_forest_rows(model, models), *_member_rows(model, of_level), together)
    return ReportTable(model.name, MEMBER_COLUMNS, rows, note)


def _forest_rows(model: MeasuredModel, models: Sequence[MeasuredModel]) -> list[Cells]:
    for other in models:
        if isinstance(other.model, ForestStack) and same_stack(other.model, model.stack):
            return [_row(f"forest, level {number}", scores) for number, scores in enumerate(other.per_level, 1)]
    return []


def _member_rows(model: MeasuredModel, of_level: Sequence[Member]) -> Iterator[Cells]:
    """The levels of the network, the last of which is the first member, then the convolutional members."""
    network, *convolutional = of_level
    *before, last = model.per_level[:-1]
    for number, scores in enumerate(before, 1):
        yield _row(f"network, level {number}", scores)
    yield _row(f"network, level {len(before) + 1}", last, network.weight, network.dice)
    for member in convolutional:
        if member.name in model.members:
            yield _row(member.name, model.members[member.name], member.weight, member.dice)


def _row(name: str, scores: Scores, weight: float = 0.0, held_out: float | None = None) -> Cells:
    """A weight of 0 is shown as a dash."""
    return name, *scores.means.values(), weight or None, held_out


def refinement(comparison: Comparison) -> list[Section]:
    """Loss and score over the steps of every refinement that a model stores."""
    histories: dict[str, list[Check]] = {}
    notes = []
    for model in comparison.models:
        checks = joined_checks(model.model.refinements)
        if not checks or checks in histories.values():
            continue  # a soft forest stores the refinement of its network
        histories[model.name] = checks
        scores = model.model.refinements[-1].scores
        if scores:
            parts = [f"{score:.3f} of {REFINEMENT_SCORES[name]}" for name, score in scores.items()]
            notes.append(f"{model.name}: mean Dice {joined_words(parts)}.")
    charts = []
    for attribute, label in (("loss", "loss"), ("mean_dice", "mean Dice")):
        lines: dict[str, Line] = {}
        for name, checks in histories.items():
            values = [(check.step, getattr(check, attribute)) for check in checks]
            points = [(step, float(value), 0.0) for step, value in values if value is not None]
            if len(points) > 1:
                lines[name] = points
        if lines:
            ends = "; ".join(f"{name} from {points[0][1]:.3g} to {points[-1][1]:.3g}" for name, points in lines.items())
            alt = f"{label} over the steps of refinement: {ends}"
            charts.append(line_chart(lines, "step", label, alt, comparison.colours))
    if not charts:
        return []
    text = "The loss is that on the training images."
    if notes or len(charts) > 1:
        text += " Scores are on held-out images, which neither the forests nor the refinement saw, not on this page's."
    key = {name: comparison.colours[name] for name in histories}
    return [Section("training", "Refinement", " ".join([text, *notes]), charts, key)]


def joined_checks(refinements: Sequence[Refinement]) -> list[Check]:
    """The checks of successive refinements as one history; each refinement continues the steps of the one before."""
    checks: list[Check] = []
    for record in refinements:
        start = checks[-1].step if checks else 0
        # Before 0.2.0, scores came from images that the forests had seen.
        own = [check if record.n_scored else replace(check, mean_dice=None) for check in record.checks]
        checks += [replace(check, step=start + check.step) for check in own[bool(checks) :]]
    return checks
