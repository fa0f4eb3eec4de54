"""The paper's comparisons: what Hedgerow is measured against, and on which images."""

from hedgerow.lazy import attach

# Loaded when they are first used: the command line names them, and must start at once.
__getattr__, __dir__ = attach("hedgerow.experiments", {"run_demo": "demo", "run_experiment": "runner"})
