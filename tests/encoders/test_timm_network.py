"""Networks of timm as encoders, with a small stand-in for timm, which is not installed where we test."""

import os
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from hedgerow.encoders.protocol import EncoderLayer
from hedgerow.encoders.timm_network import TimmNetwork
from hedgerow.errors import ConfigError, HedgerowError
from helpers.refusals import assert_one_sentence

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


class Info:
    def __init__(self, strides, channels):
        self._strides, self._channels = strides, channels

    def reduction(self):
        return list(self._strides)

    def channels(self):
        return list(self._channels)


class Small(nn.Module):
    """Two layers, of strides 2 and 64, with a normalisation that has statistics."""

    def __init__(self, seed=0, strides=(2, 64)):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first = nn.Conv2d(3, 4, 3, stride=2, padding=1)
            self.norm = nn.BatchNorm2d(4)
            self.second = nn.Conv2d(4, 6, 32, stride=32)
        self.feature_info = Info(strides, (4, 6))
        self.pretrained_cfg = {"mean": MEAN, "std": STD}

    def forward(self, x):
        first = self.norm(self.first(x)).relu()
        return [first, self.second(first)]


class FixedSize(Small):
    def forward(self, x):
        assert x.shape[-2:] == (224, 224), "Input height (128)\ndoesn't match model (224)"
        return super().forward(x)


class ChannelsLast(Small):
    def forward(self, x):
        return [layer.permute(0, 2, 3, 1) for layer in super().forward(x)]


NETWORKS = {
    "small": Small,
    "other": lambda: Small(1),
    "fixed": FixedSize,
    "last": ChannelsLast,
    "fourteen": lambda: Small(0, (2, 14)),
    "absent": Small,
    "web": Small,
}


def create_model(name, features_only, pretrained):
    assert features_only
    if name == "whole":
        raise RuntimeError("features_only not implemented\nfor this model.")
    if pretrained:
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        hub = sys.modules.get("huggingface_hub.constants")
        assert hub is None or hub.HF_HUB_OFFLINE
        if name == "absent":
            raise FileNotFoundError("Cannot find the requested files\nin the disk cache")
        if name == "web":
            torch.hub.load_state_dict_from_url("https://127.0.0.1:9/none.pth", progress=False)
    return NETWORKS[name]()


@pytest.fixture(autouse=True)
def _timm(monkeypatch, tmp_path):
    timm = types.ModuleType("timm")
    timm.is_model = lambda name: name == "whole" or name in NETWORKS
    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def picture(height=64, width=128):
    return np.random.default_rng(4).uniform(0, 255, (3, height, width)).astype(np.float32)


def test_layers_strides_and_channels_are_those_of_timm():
    encoder = TimmNetwork("small")
    assert encoder.name == "timm:small"
    assert encoder.layers == (EncoderLayer("f0", 2, 4), EncoderLayer("f1", 64, 6))
    assert encoder.default_layers == ("f0", "f1")
    assert encoder.multiple == 64


def test_the_answers_are_those_of_the_network_for_its_own_scaling():
    scaled = picture()
    mean, std = (np.array(values)[:, None, None] for values in (MEAN, STD))
    network = Small().double().eval()
    wanted = network(torch.from_numpy((scaled / 255 - mean) / std)[None])
    outputs = TimmNetwork("small").run(scaled, ["f1", "f0"])
    np.testing.assert_allclose(outputs[0], wanted[1][0].detach(), atol=1e-5)
    np.testing.assert_allclose(outputs[1], wanted[0][0].detach(), atol=1e-5)
    assert all(layer.dtype == np.float32 for layer in outputs)


def test_gradients_reach_the_weights_that_are_given():
    encoder = TimmNetwork("small")
    assert not any(weight.requires_grad for weight in encoder.weights.values())
    name = "first.weight"
    encoder.weights[name] = encoder.weights[name].clone().requires_grad_()
    picture_tensor = torch.from_numpy(picture()).requires_grad_()
    encoder.outputs(picture_tensor, ["f1"])[0].square().sum().backward()
    assert encoder.weights[name].grad.abs().max() > 0
    assert picture_tensor.grad.abs().max() > 0


def test_running_does_not_change_the_weights():
    encoder = TimmNetwork("small")
    before = {name: weight.clone() for name, weight in encoder.weights.items()}
    encoder.run(picture(), ["f0"])
    assert all(torch.equal(before[name], weight) for name, weight in encoder.weights.items())


def test_the_checksum_tells_weights_apart():
    assert TimmNetwork("small").checksum == TimmNetwork("small").checksum
    assert len({TimmNetwork("small").checksum, TimmNetwork("other").checksum}) == 2
    assert len(TimmNetwork("small").checksum) == 64


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet_1e9", ("no network 'resnet_1e9'", "timm.list_models")),
        ("whole", ("does not offer the inner layers of whole", "choose another")),
        ("absent", ("not on this machine", "timm.create_model('absent', pretrained=True)")),
        ("web", ("not on this machine", "nothing is downloaded")),
        ("fixed", ("cannot be run", "any size")),
        ("last", ("layer f0", "choose another")),
        ("fourteen", ("layer f1", "choose another")),
    ],
)
def test_a_network_that_cannot_be_used_is_refused(name, words):
    with pytest.raises(ConfigError) as problem:
        TimmNetwork(name)
    assert_one_sentence(problem, *words)


def test_timm_must_be_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(HedgerowError) as problem:
        TimmNetwork("small")
    assert_one_sentence(problem, "needs timm", "pip install")


@pytest.mark.parametrize("before", [None, "0"])
@pytest.mark.parametrize("name", ["small", "absent"])
def test_downloads_are_forbidden_only_meanwhile(monkeypatch, before, name):
    constants = types.ModuleType("huggingface_hub.constants")
    constants.HF_HUB_OFFLINE = False
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    if before is not None:
        monkeypatch.setenv("HF_HUB_OFFLINE", before)
    opened = torch.hub.urlopen
    if name == "absent":
        with pytest.raises(ConfigError):
            TimmNetwork(name)
    else:
        TimmNetwork(name)
    assert os.environ.get("HF_HUB_OFFLINE") == before
    assert constants.HF_HUB_OFFLINE is False
    assert torch.hub.urlopen is opened
