"""Models against labelled images: what is counted, ignored, reported and refused."""

import dataclasses

import numpy as np
import pytest

import hedgerow as hr
from conftest import CLASSES
from hedgerow.errors import InputError


def test_evaluation_equals_scores_of_the_predictions(stack, example):
    scores = hr.evaluate(stack, example.images, example.labels)
    predicted = [stack.predict(image) for image in example.images]
    hits = sum(int((p == t).sum()) for p, t in zip(predicted, example.labels, strict=True))
    assert scores.classes == CLASSES
    assert scores.accuracy == hits / (2 * 24 * 32)
    for i, truth in enumerate(CLASSES):
        for j, guess in enumerate(CLASSES):
            pairs = zip(predicted, example.labels, strict=True)
            assert scores.confusion[i, j] == sum(((p == guess) & (t == truth)).sum() for p, t in pairs)


def test_evaluation_ignores_what_is_not_labelled(stack, example):
    labels = [labels.copy() for labels in example.labels]
    labels[0][:12] = 255
    assert hr.evaluate(stack, example.images, labels).confusion.sum() == 2 * 24 * 32 - 12 * 32
    labels[0][:12] = -1
    found = hr.evaluate(stack, example.images, labels, unlabelled=-1)
    assert found.confusion.sum() == 2 * 24 * 32 - 12 * 32


def test_evaluation_reports_its_progress_and_can_be_stopped(stack, example):
    seen = []
    hr.evaluate(stack, example.images, example.labels, progress=lambda *now: seen.append(now))
    assert seen == [("evaluating", 1, 2), ("evaluating", 2, 2)]

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hr.evaluate(stack, example.images, example.labels, progress=stop)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        ([], [], "0 image"),
        ([np.zeros((24, 32))], [], "1 image"),
        ([np.zeros((24, 32))], [np.zeros((24, 31), int)], "painting"),
        ([np.full((24, 32), np.nan)], [np.full((24, 32), 3)], "painting"),
        ([np.zeros((24, 32, 3))], [np.full((24, 32), 3)], "painting has 3 channel"),
        ([np.zeros((24, 32))], [np.full((24, 32), 4)], "painting"),
        ([np.zeros((24, 32))], [np.full((24, 32), 255)], "painting"),
        ([np.zeros((24, 32))], [np.full((24, 32), 0.5)], "painting"),
    ],
)
def test_evaluation_refuses_by_name_before_it_predicts(stack, images, labels, words):
    class Unused:
        def __getattr__(self, name):
            assert name != "run_level", "nothing was predicted yet"
            return getattr(stack, name)

    with pytest.raises(InputError, match=words):
        hr.evaluate(Unused(), images, labels, names=["painting"] * len(images))


def test_own_channels_are_evaluated_as_they_are_trained(tiny_config, example):
    images = [np.stack([image, image[::-1]]).astype(np.float32) for image in example.images]
    model = hr.fit_stack(images, example.labels, dataclasses.replace(tiny_config, features="channels"))
    assert hr.evaluate(model, images, example.labels).accuracy > 0.8
