"""Jobs read files and write files, for the command line, the page and workers. They do not print.

Each job is a function of one request, a frozen dataclass that holds everything the job needs. Long work reports
through `progress` (None: a bar on the terminal); messages go to `say`.
"""

from hedgerow.lazy import attach

# Each module is loaded when its job is first used, so that importing this package is instant.
_HOMES = {
    "BackRequest": "mapping_back",
    "DemoRequest": "demo",
    "EvaluateRequest": "evaluating",
    "ExportRequest": "exporting",
    "LARGE_IMAGE_PIXELS": "inputs",
    "LookRequest": "looking",
    "MAX_PIXELS_IN_MEMORY": "inputs",
    "MeasureRequest": "measuring",
    "PredictRequest": "predicting",
    "PredictedLarge": "predicting",
    "RefineRequest": "refining",
    "ReportRequest": "reporting",
    "TrainRequest": "training",
    "add_encoder": "encoding",
    "back": "mapping_back",
    "describe": "describing",
    "describe_system": "describing",
    "encoders": "encoding",
    "evaluate": "evaluating",
    "export": "exporting",
    "look": "looking",
    "measure": "measuring",
    "predict": "predicting",
    "refine": "refining",
    "report": "reporting",
    "run_demo": "demo",
    "train": "training",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = attach("hedgerow.jobs", _HOMES)
