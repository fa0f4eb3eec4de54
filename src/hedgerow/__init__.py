"""Hedgerow: segment images, pixel by pixel, from a handful of labelled examples."""

from hedgerow.lazy import attach

__version__ = "0.3.0"

# Public names and where they live; each module is loaded when a name is first used, so that importing is instant.
_HOMES = {
    "AugmentConfig": "config",
    "ConfigError": "errors",
    "ContextConfig": "config",
    "ConvConfig": "config",
    "DeepConfig": "config",
    "DeepStack": "deep.deepstack",
    "DivergenceError": "errors",
    "EncoderConfig": "config",
    "ForestStack": "forest.arrays",
    "HedgerowError": "errors",
    "InputError": "errors",
    "Legend": "images.legend",
    "ModelError": "errors",
    "NeuralForestClassifier": "sklearn.classifier",
    "ObjectScores": "images.object_metrics",
    "PixelClassifier": "sklearn.pixels",
    "RefineConfig": "config",
    "SamplingConfig": "config",
    "Scores": "images.metrics",
    "Sharpness": "config",
    "StackConfig": "config",
    "StackNet": "network.stacknet",
    "cache_features": "features.layer_cache",
    "class_table": "images.classes",
    "deepen": "deep.fitting",
    "distil": "deep.distilling",
    "evaluate": "predict.evaluate",
    "fit": "jobs.training",
    "fit_stack": "forest.settings_choice",
    "from_sklearn": "sklearn.forests",
    "load": "io.model_file",
    "look": "report.figures",
    "measure": "images.objects",
    "object_scores": "images.object_metrics",
    "objects": "images.object_search",
    "predict_large": "scale.large_prediction",
    "read_image": "images.reading",
    "read_labels": "images.label_files",
    "refine": "refinement.loop",
    "save": "io.model_file",
    "set_threads": "threads",
    "show": "images.showing",
    "synthetic": "",
    "to_convnet": "network.mapping",
    "to_forest": "network.mapback",
    "to_sklearn": "sklearn.forests",
    "write_report": "report",
}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = attach("hedgerow", _HOMES)
