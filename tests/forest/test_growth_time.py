"""The cost of growing a stack, calculated beforehand, beside what was measured."""

from dataclasses import replace

import pytest

import hedgerow as hr
from hedgerow.forest.growth_time import growing_costs
from hedgerow.images.given import labelled_set

BANK, BOTH = hr.StackConfig(), hr.StackConfig(features=("bank", "encoder"))
STROKES = hr.StackConfig(
    n_levels=1, n_trees=64, min_split=2, context=hr.ContextConfig(window=1), sampling=hr.SamplingConfig(step=1)
)


def somites(n, side):
    return hr.synthetic.somites(n_images=n, size=(side, side))


def strokes(images, labels):
    return images, [hr.synthetic.paint(whole, 0.01) for whole in labels]


# CPU seconds of one thread, measured with warm kernels on 2026-11-19 (docs/measurements/estimates.md).
MEASURED = [
    (lambda: somites(2, 96), BANK, 2.03),
    (lambda: somites(2, 256), BANK, 9.23),
    (lambda: somites(2, 256), BOTH, 11.7),
    (lambda: somites(8, 192), BANK, 17.7),
    (lambda: somites(16, 192), BANK, 26.8),
    (lambda: somites(1, 512), BANK, 13.8),
    (lambda: somites(4, 512), BANK, 39.4),
    (lambda: strokes(*somites(2, 512)), STROKES, 1.74),
    (lambda: hr.synthetic.facades(n_images=4), BOTH, 29.0),
]


@pytest.mark.parametrize(("draw", "config", "seconds"), MEASURED)
def test_estimates_are_within_a_factor_of_two_of_what_was_measured(draw, config, seconds):
    assert seconds / 2 < growing_costs(labelled_set(*draw()), config).total < 2 * seconds


@pytest.mark.parametrize(
    "changes",
    [
        {"n_trees": 32},
        {"n_levels": 6},
        {"n_folds": 4},
        {"augment": hr.AugmentConfig(copies=1)},
        {"sampling": hr.SamplingConfig(step=1)},
        {"context": hr.ContextConfig(n_offsets=30)},
        {"features": ("bank", "encoder")},
    ],
)
def test_more_work_costs_more(changes):
    labelled = labelled_set(*somites(4, 64))
    config = hr.StackConfig(sampling=hr.SamplingConfig(step=3))
    more = growing_costs(labelled, replace(config, **changes))
    assert more.total > 1.1 * growing_costs(labelled, config).total


def test_a_level_is_its_trees_and_its_predictions():
    labelled = labelled_set(*somites(4, 64))
    costs = growing_costs(labelled, hr.StackConfig(n_levels=2))
    assert len(costs.levels) == 4
    assert costs.total == pytest.approx(costs.features + sum(costs.levels))
    none = growing_costs(labelled, hr.StackConfig(n_levels=2, held_out="none"))
    assert none.levels[0] == pytest.approx(costs.levels[0] / 3), "one forest in place of three"


def test_samples_are_counted_as_they_are_drawn():
    """A rare class, and a limit on all, count."""
    labelled = labelled_set(*somites(1, 64))
    few = hr.StackConfig(sampling=hr.SamplingConfig(kind="per_class", per_class=2))
    many = hr.StackConfig(sampling=hr.SamplingConfig(kind="per_class", per_class=20))
    assert growing_costs(labelled, few).total < growing_costs(labelled, many).total
    capped = hr.StackConfig(sampling=hr.SamplingConfig(max_samples=100))
    assert growing_costs(labelled, capped).total < growing_costs(labelled, hr.StackConfig()).total
