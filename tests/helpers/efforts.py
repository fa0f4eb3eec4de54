"""Efforts whose networks are trained for seconds."""

from functools import partial

from hedgerow.config import ConvConfig, DeepConfig, RefineConfig
from hedgerow.jobs import training
from hedgerow.jobs.estimates import Budget
from hedgerow.plan_progress import WholePlan
from hedgerow.progress import silent

SMALL_LEVEL = DeepConfig(n_folds=2, n_networks=1, members=("reading",), conv=ConvConfig(base=2, n_down=2, batch=2))
FEW_STEPS = RefineConfig(n_steps=3, pixels=200, held_out=0.0)
small_budget = partial(
    Budget,
    first_refinement=FEW_STEPS,
    cpu_plan=SMALL_LEVEL,
    least_steps=0,  # there is always time for networks
    slowness=lambda: 1.0,
    steps=(4, 4),
)


def make_small(monkeypatch, module=training, **changes):
    """Let all efforts that this module begins refine briefly, and train small networks for a few steps."""
    monkeypatch.setattr(module, "Budget", partial(small_budget, **changes))


def silent_plan():
    """The plan of a search, which nobody sees."""
    return WholePlan([1.0] * 7, silent)


def helping(refined):
    """A choice of how to refine that scores so."""
    from hedgerow.deep.refinement_search import RefinementChoice  # needs PyTorch

    return lambda *given, **options: RefinementChoice(FEW_STEPS, 0.5, refined)
