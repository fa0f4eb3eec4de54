"""Models that Hedgerow 0.1.0 wrote, with what it predicted: they load, and predict the same bits on a CPU."""

from pathlib import Path

import numpy as np
import pytest

import hedgerow as hr

FOLDER = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in FOLDER.glob("*.hedge"))


def test_every_kind_of_model_is_here():
    kinds = {"stack-offsets", "stack-windows", "stack-oblique", "stack-depth", "stack-colour", "stack-channels"}
    kinds |= {"forest-soft", "forest-weights", "net-soft", "net-tanh", "net-crelu", "net-hard", "net-depth"}
    assert kinds <= set(NAMES)


def predictions(model, image):
    outputs = {f"level{k}": output for k, output in enumerate(model.level_outputs(image))}
    return {"labels": model.predict(image), **outputs}


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_the_first_version_predicts_the_same_bits(name, tmp_path):
    if name.startswith("net"):
        pytest.importorskip("torch")
    model = hr.load(FOLDER / f"{name}.hedge")
    with np.load(FOLDER / f"{name}.npz") as stored:
        expected = dict(stored)
    image = expected.pop("image")
    found = predictions(model, image)
    assert found.keys() == expected.keys()
    hr.save(model, tmp_path / "again.hedge")
    again = predictions(hr.load(tmp_path / "again.hedge"), image)
    for what, array in expected.items():
        assert found[what].dtype == array.dtype
        assert found[what].tobytes() == array.tobytes(), what
        assert again[what].tobytes() == array.tobytes(), f"{what}, written again"


def test_the_refinements_of_the_first_version_are_remembered():
    pytest.importorskip("torch")
    net = hr.load(FOLDER / "net-soft.hedge")
    (record,) = net.refinements
    assert net.relaxed
    assert [check.step for check in record.checks] == [0, 2, 4]
    assert record.refined is not None
    assert record.scores == {}, "they came from images that the forests had seen"
    assert hr.load(FOLDER / "forest-soft.hedge").refinements == net.refinements
    assert not hr.load(FOLDER / "net-hard.hedge").relaxed
    assert not hr.load(FOLDER / "forest-weights.hedge").refinements
