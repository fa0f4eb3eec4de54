"""Jobs: from files to files, as the command line, a page or a cluster calls them. None of them prints.

What takes long reports through `progress` (None: a bar on the terminal); what is worth knowing at once goes to `say`.
"""

from hedgerow.lazy import attach

# Each module is loaded when its job is first used, so that importing this package is instant.
_HOMES = {
    "add_encoder": "encoding",
    "back": "mapping_back",
    "describe": "describing",
    "encoders": "encoding",
    "evaluate": "evaluating",
    "export": "exporting",
    "look": "looking",
    "measure": "measuring",
    "predict": "predicting",
    "refine": "refining",
    "report": "reporting",
    "run_demo": "demo",
    "system": "describing",
    "train": "training",
    "train_with_effort": "effort",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = attach("hedgerow.jobs", _HOMES)
