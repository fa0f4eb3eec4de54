"""Jobs read files and write files, for the command line, the page and workers. They do not print.

Each job is a function of one request, a frozen dataclass that holds everything the job needs. Long work reports
through `progress` (None: a bar on the terminal); messages go to `say`.
"""

from hedgerow.lazy import attach

# Each module is loaded when its job is first used, so that importing this package is instant.
_MODULES = {
    "demo": ("DemoRequest", "run_demo"),
    "describing": ("add_encoder", "describe", "describe_system", "encoder_offer", "encoders"),
    "evaluating": ("EvaluateRequest", "evaluate", "evaluate_objects"),
    "exporting": ("ExportRequest", "export"),
    "finding": ("ObjectsRequest", "find_objects"),
    "inputs": ("LARGE_IMAGE_PIXELS", "MAX_PIXELS_IN_MEMORY"),
    "looking": ("LookRequest", "look"),
    "mapping_back": ("BackRequest", "back"),
    "measuring": ("MeasureRequest", "measure"),
    "predicting": ("PredictRequest", "PredictedLarge", "predict"),
    "refining": ("RefineRequest", "refine"),
    "reporting": ("ReportRequest", "report"),
    "training": ("TrainRequest", "train"),
    "warming_up": ("warm_up",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = attach("hedgerow.jobs", _HOMES)
