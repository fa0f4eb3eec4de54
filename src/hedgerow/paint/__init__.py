"""The page to paint on: a local server for one user, the project it saves, and the worker that segments."""

from hedgerow.lazy import attach

# Loaded when they are first used: the command line names them, and must start at once.
__getattr__, __dir__ = attach(
    "hedgerow.paint",
    {"open_project": "image_files", "run_server": "server", "import_labels": "imports", "warm_up": "quick_forest"},
)
