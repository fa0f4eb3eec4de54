"""A network in a model file: its shapes are checked before memory is asked for, and what it computes stays finite."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.io.model_file import load
from hedgerow.kernels.constants import LEAF
from helpers.model_files import Contents, refusal, refused


@pytest.fixture
def net_contents(net, tmp_path):
    hr.save(net, tmp_path / "net.hedge")
    return Contents.of(tmp_path / "net.hedge")


def wide(contents, n_leaves):
    """A forest of two-leaf trees with its mapped weights: its full connections would be n_leaves squared."""
    n = 3 * n_leaves // 2
    node = np.arange(n)
    is_split = node % 3 == 0
    parts = {
        "root": node[is_split],
        "left_child": np.where(is_split, node + 1, LEAF),
        "threshold": np.zeros(n),
        "channel": np.zeros((n, 1)),
        "offset": np.zeros((n, 1, 3)),
        "radius": np.zeros((n, 1)),
        "weight": np.ones((n, 1)),
        "leaf_index": np.where(is_split, LEAF, 0),
        "votes": np.ones((1, 3)),
    }
    weights = {"split_weight": (n // 3, 1), "split_bias": (n // 3,), "vote_weight": (n_leaves, 3)}
    weights |= {"leaf_weight": (1,), "leaf_bias": (n_leaves,)}
    for k in range(2):
        contents.arrays |= {f"level{k}.{name}": array.astype(np.int32) for name, array in parts.items()}
        contents.arrays |= {f"net{k}.{name}": np.ones(shape, np.uint8) for name, shape in weights.items()}
    contents.model["net"]["connections"] = "full"


def test_full_connections_are_not_made_before_their_shape_is_checked(net_contents, tmp_path, monkeypatch):
    wide(net_contents, 8000)  # 2 x 4,000 x 8,000 weights a level, which would be accepted
    net_contents.write(tmp_path / "bad.hedge")
    assert (tmp_path / "bad.hedge").stat().st_size < 2e6
    created, zeros = [], torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, **given: created.append(shape) or zeros(*shape, **given))
    assert "net0.leaf_weight does not fit" in refused(tmp_path / "bad.hedge")
    assert not created


@pytest.mark.parametrize(
    ("name", "value"), [("vote_weight", 1e30), ("vote_weight", -1e30), ("split_weight", 1e30), ("split_weight", -1e30)]
)
def test_weights_that_overflow_are_refused(net_contents, tmp_path, name, value):
    array = net_contents.arrays[f"net1.{name}"]
    net_contents.arrays[f"net1.{name}"] = np.full(array.shape, value, np.float32)
    assert "out of range" in refusal(net_contents, tmp_path)


def test_the_votes_of_a_hard_network_are_probabilities(stack, tmp_path):
    hr.save(hr.to_convnet(stack, "hard"), tmp_path / "hard.hedge")
    contents = Contents.of(tmp_path / "hard.hedge")
    contents.arrays["net1.vote_weight"] = -contents.arrays["net1.vote_weight"].astype(np.float32)
    assert "negative" in refusal(contents, tmp_path)


def test_leaves_of_trained_connections_do_not_overflow(stack, example, tmp_path):
    net = hr.to_convnet(stack, connections="full")
    with torch.no_grad():
        net.level(0).leaf_bias += 1000
        net.level(1).leaf_weight *= -1000
    hr.save(net, tmp_path / "net.hedge")
    proba = load(tmp_path / "net.hedge").predict_proba(example.images[0])
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize(
    "record",
    [
        {"config": {}, "checks": [{"step": -1}]},
        {"config": {}, "checks": [{"step": 10**9}]},
        {"config": {}, "checks": [{"step": 0, "mean_dice": 7}]},
        {"config": {}, "checks": [{"step": 0, "loss": 1e300}]},
        {"config": {}, "checks": [{"step": 0}], "refined": -0.5},
        {"config": [], "checks": [{"step": 0}]},
        {"config": {}, "checks": "none"},
    ],
    ids=str,
)
def test_refinements_that_cannot_be_are_refused(net_contents, tmp_path, record):
    net_contents.model["net"]["refined"] = [record]
    assert "history" in refusal(net_contents, tmp_path)


def test_a_sharpness_of_a_million_levels_is_refused_in_few_words(net_contents, tmp_path):
    net_contents.model["net"]["sharpness"] = [{"split": [1] * 1000, "leaf": 1.0, "vote": 0.5}] * 2
    assert len(refusal(net_contents, tmp_path)) < 300 + len(str(tmp_path))
    net_contents.model["net"]["sharpness"] = [{}] * 1000
    assert "levels" in refusal(net_contents, tmp_path)
