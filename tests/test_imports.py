"""What importing costs, and which names are public."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hedgerow

HEAVY = (
    "numba",
    "torch",
    "matplotlib",
    "zarr",
    "tifffile",
    "imagecodecs",
    "PIL",
    "safetensors",
    "scipy",
    "sklearn",
    "jinja2",
    "IPython",
)
PUBLIC = [
    "AugmentConfig",
    "ConfigError",
    "ContextConfig",
    "ConvConfig",
    "DeepConfig",
    "DeepStack",
    "DivergenceError",
    "EncoderConfig",
    "ForestStack",
    "HedgerowError",
    "InputError",
    "Legend",
    "ModelError",
    "NeuralForestClassifier",
    "ObjectScores",
    "PixelClassifier",
    "RefineConfig",
    "SamplingConfig",
    "Scores",
    "Sharpness",
    "StackConfig",
    "StackNet",
    "cache_features",
    "class_table",
    "deepen",
    "distil",
    "evaluate",
    "fit",
    "fit_stack",
    "from_sklearn",
    "load",
    "look",
    "measure",
    "object_scores",
    "objects",
    "predict_large",
    "read_image",
    "read_labels",
    "refine",
    "save",
    "set_threads",
    "show",
    "synthetic",
    "to_convnet",
    "to_forest",
    "to_sklearn",
    "write_report",
]


def loaded_after(code):
    """The heavy modules that a fresh interpreter has loaded after running the code."""
    ask = f"import sys\n{code}\nprint('loaded:', *[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.splitlines()[-1].removeprefix("loaded:").split()


def run_main(*arguments):
    return (
        f"sys.argv = ['hedgerow', *{arguments!r}]\n"
        "from hedgerow.cli import main\n"
        "try:\n    main()\nexcept SystemExit as leaving:\n    assert not leaving.code"
    )


def test_the_probe_sees_a_heavy_module():
    assert "numba" in loaded_after("import numba")


@pytest.mark.parametrize(
    "code",
    [
        "import hedgerow",
        "import hedgerow; hedgerow.StackConfig().to_dict(); hedgerow.InputError, dir(hedgerow)",
        "import hedgerow.images, hedgerow.images.metrics",
        run_main("--help"),
        run_main("train", "--help"),
        run_main("settings"),
    ],
)
def test_what_needs_no_kernels_loads_none(code):
    assert loaded_after(code) == []


def test_describing_a_model_loads_no_extra(model_file):
    assert set(loaded_after(run_main("info", str(model_file)))) <= {"numba", "safetensors", "scipy"}


def test_public_names_are_these_and_each_resolves():
    assert hedgerow.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(hedgerow, name) is not None
    assert set(PUBLIC) <= set(dir(hedgerow))


def test_star_import_brings_every_public_name():
    names: dict[str, object] = {}
    exec("from hedgerow import *", names)
    assert set(PUBLIC) <= set(names)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="forest_of_wonders"):
        _ = hedgerow.forest_of_wonders


def test_the_extra_all_has_all_that_users_may_want():
    """And nothing that only developers need."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    named = re.fullmatch(r"hedgerow\[(.*)\]", extras["all"][0])[1].split(",")
    assert set(named) == set(extras) - {"all", "test", "dev", "dist", "docs", "bench"}


def test_the_version_is_the_same_everywhere():
    root = Path(__file__).parents[1]
    assert f"\nversion: {hedgerow.__version__}\n" in (root / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {hedgerow.__version__} " in (root / "CHANGES.md").read_text(encoding="utf-8")
