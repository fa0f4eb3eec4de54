"""The examples in the docstrings of the public names: each has one, and each does what it says."""

import doctest
import inspect

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import threads

# Settings within others are shown by those; errors have nothing to show.
PARTS = {"AugmentConfig", "ContextConfig", "SamplingConfig", "Sharpness"}
NEEDS = {
    "NeuralForestClassifier": ("sklearn", "torch"),
    "StackNet": ("torch",),
    "from_sklearn": ("sklearn",),
    "look": ("matplotlib",),
    "refine": ("torch",),
    "to_convnet": ("torch",),
    "to_forest": ("torch",),
    "to_sklearn": ("sklearn",),
    "write_report": ("jinja2", "matplotlib"),
}


def shown_names():
    """Public names whose docstrings hold examples; those of a module are its functions."""
    for name in hr.__all__:
        if name == "synthetic":
            yield from ("synthetic.somites", "synthetic.bodies", "synthetic.embryo")
        elif name not in PARTS and not name.endswith("Error"):
            yield name


@pytest.mark.parametrize("name", list(shown_names()))
def test_the_example_of_a_public_name_works(name, tmp_path, monkeypatch):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    named = hr
    for part in name.split("."):
        named = getattr(named, part)
    text = inspect.getdoc(named)
    example = doctest.DocTestParser().get_doctest(text, {"hr": hr, "np": np}, name, None, None)
    assert example.examples, "there is no example"
    output = []
    with threads.threads(threads.get_threads()):  # an example sets another number
        result = doctest.DocTestRunner().run(example, out=output.append)
    assert result.failed == 0, "".join(output)
