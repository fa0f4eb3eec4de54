"""Efforts whose networks are trained for seconds."""

import math

from hedgerow.config import ConvConfig, DeepConfig, RefineConfig
from hedgerow.jobs import effort_run, estimates

SMALL_LEVEL = DeepConfig(n_folds=2, n_networks=1, members=("reading",), conv=ConvConfig(base=2, n_down=2, batch=2))
FEW_STEPS = RefineConfig(n_steps=3, pixels=200, held_out=0.0)


def make_small(monkeypatch, level=SMALL_LEVEL, steps=4):
    """Let `best` refine briefly, and train these networks for so many steps."""
    monkeypatch.setattr(effort_run, "FIRST_REFINEMENT", FEW_STEPS)
    monkeypatch.setattr(estimates, "CPU_PLAN", level)
    monkeypatch.setattr(estimates, "LEAST_CPU_SECONDS", -math.inf)  # there is always time for networks
    monkeypatch.setattr(estimates, "FEWEST_STEPS", steps)
    monkeypatch.setattr(estimates, "MOST_STEPS", steps)


def helping(refined):
    """A choice of how to refine that scores so."""
    from hedgerow.deep.refinement_search import RefinementChoice  # needs PyTorch

    return lambda *given, **options: RefinementChoice(FEW_STEPS, 0.5, refined, [])
