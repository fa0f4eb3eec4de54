"""The contents of the page: its sections, in order.

A section is a function in a module of this package and a line here: from a Comparison it makes the sections to show,
none if there is nothing to show.
"""

from collections.abc import Callable
from typing import Any

from hedgerow.report import examples, facts, gains, inner_layers, mistakes, scores, splits
from hedgerow.report.sections import Comparison, Section

SECTIONS: tuple[Callable[[Comparison], list[Section]], ...] = (
    scores.model_scores,
    examples.image_examples,
    scores.image_scores,
    gains.per_level,
    gains.per_member,
    gains.refinement,
    mistakes.confusion,
    inner_layers.inner_layers,
    mistakes.calibration,
    splits.split_choices,
    facts.more_results,
    facts.how_it_was_made,
)


def contents(comparison: Comparison) -> dict[str, Any]:
    """What the template shows."""
    return {
        "headline": scores.headline(comparison),
        "sections": [section for make in SECTIONS for section in make(comparison)],
    }
