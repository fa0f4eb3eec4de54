"""Encoders by name: one from outside is a class that is registered, and is then trained with, listed and saved."""

import hashlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow import jobs
from hedgerow.choices import ENCODERS
from hedgerow.encoders import catalogue, store
from hedgerow.encoders.protocol import EncoderLayer
from hedgerow.encoders.published import PublishedEncoder, weight_and_bias
from hedgerow.errors import ConfigError, InputError
from hedgerow.export.onnx_model import export_onnx
from helpers.refusals import assert_one_sentence


class Tiny(PublishedEncoder):
    """One convolution, with a value for every second row and column."""

    name = "tiny"
    title = "one convolution"
    file = "tiny.pt"
    licence = "CC0-1.0"
    good_for = "tests"
    layers = (EncoderLayer("first", 2, 4),)
    default_layers = ("first",)
    multiple = 2

    def outputs(self, picture, names):
        weight, bias = (self.weights[f"conv.{part}"].to(picture) for part in ("weight", "bias"))
        return [torch.nn.functional.conv2d(picture[None] / 255, weight, bias, stride=2, padding=1)[0] for _ in names]

    @staticmethod
    def layer_shapes(layer):
        return weight_and_bias("conv", 4, 3, 3, 3)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Its weights, in a file as if they were published."""
    monkeypatch.setenv("HEDGEROW_ENCODERS", str(tmp_path / "encoders"))
    monkeypatch.setattr(catalogue, "PUBLISHED", dict(catalogue.PUBLISHED))
    torch.manual_seed(0)
    weights = {"conv.weight": torch.randn(4, 3, 3, 3), "conv.bias": torch.randn(4)}
    path = tmp_path / "tiny.pt"
    torch.save(weights, path)
    Tiny.n_bytes, Tiny.sha256 = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    Tiny.checksum = store.tensors_checksum(weights)
    assert catalogue.register(Tiny) is Tiny
    yield path
    catalogue._published.cache_clear()


def test_the_table_names_the_encoders_by_their_names():
    assert list(ENCODERS) == [encoder.name for encoder in catalogue.PUBLISHED.values()]
    for encoder in catalogue.PUBLISHED.values():
        assert set(encoder.default_layers) <= {layer.name for layer in encoder.layers}
        assert encoder.layer_shapes(encoder.default_layers[-1])


def test_an_encoder_from_outside_is_added_listed_trained_with_and_saved(tiny, tmp_path, example):
    with pytest.raises(ConfigError) as problem:
        catalogue.find("tiny")
    assert_one_sentence(problem, "tiny are not on this machine", "encoders add tiny tiny.pt")
    stored = jobs.add_encoder("tiny", tiny)
    listed = jobs.encoders()[-1]
    expected = {"name": "tiny", "title": "one convolution", "place": str(stored), "layers": ["first (2, 4)"]}
    assert {name: listed[name] for name in expected} == expected
    config = hr.StackConfig(
        n_levels=1, n_trees=2, features="encoder:tiny", held_out="none", encoder=hr.EncoderConfig(n_components=3)
    )
    stack = hr.fit_stack(example.images, example.labels, config)
    hr.save(stack, tmp_path / "model.hedge")
    again = hr.load(tmp_path / "model.hedge")
    np.testing.assert_array_equal(again.predict(example.images[0]), stack.predict(example.images[0]))
    net = hr.refine(
        hr.to_convnet(stack), example.images, example.labels, hr.RefineConfig(n_steps=2, train_encoder=True)
    )
    assert net.features.changed.keys() == Tiny.layer_shapes("first").keys()


def test_messages_name_it(tiny, tmp_path, example):
    with pytest.raises(ConfigError) as problem:
        catalogue.find("vgg")
    assert_one_sentence(problem, "lite0", "mobilesam", "vgg16, tiny, timm:NAME")
    with pytest.raises(ConfigError, match="already an encoder 'tiny'"):
        catalogue.register(Tiny)
    jobs.add_encoder("tiny", tiny)
    config = hr.StackConfig(n_levels=1, n_trees=2, features="encoder:tiny", held_out="none")
    stack = hr.fit_stack(example.images, example.labels, config)
    with pytest.raises(InputError) as problem:
        export_onnx(stack, tmp_path / "model.onnx")
    assert_one_sentence(problem, "tiny", "lite0, lite2, mobilesam, litemedsam can")
