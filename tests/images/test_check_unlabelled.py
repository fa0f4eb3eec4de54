"""The value that means "no label": what no label map can hold is refused wherever it enters, before any work."""

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import jobs
from hedgerow.errors import InputError
from hedgerow.images import given, labelled
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import LabelledSet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent
from helpers.files import listing
from helpers.refusals import assert_one_sentence, assert_refused

BAD = [
    *(2**32 - 1, 2**31, -(2**31) - 1, 10**400, 10**6000, float("nan"), float("inf"), 2.5, 255.0, "255", True, False),
    *([255], np.float32(255), np.bool_(True), np.array([1, 2]), "\x1b[31m", "x" * 1000, object()),
]
GOOD = [0, -1, 255, 2**31 - 1, -(2**31), np.uint8(9), np.int64(-5)]


def assert_refuses(action, *arguments, **options):
    with pytest.raises(InputError) as problem:
        action(*arguments, **options)
    assert_one_sentence(problem, "the unlabelled value is", "whole number from -2147483648 to 2147483647")
    assert str(problem.value).isprintable()
    assert len(str(problem.value)) < 200


@pytest.mark.parametrize("value", BAD, ids=lambda value: type(value).__name__)
def test_training_refuses_it_before_it_looks_at_an_image(value, tmp_path):
    nothing = [np.zeros((3, 3))], ["no labels"]
    assert_refuses(hr.fit_stack, *nothing, unlabelled=value)
    assert_refuses(labelled_set, *nothing, unlabelled=value)
    assert_refuses(hr.class_table, nothing[1], unlabelled=value)
    assert_refuses(LabelledSet, [], (0, 1), value)
    files = tmp_path / "no images", tmp_path / "no labels", tmp_path / "m.hedge"
    assert_refuses(lambda: jobs.train(jobs.TrainRequest(*files, unlabelled=value)))
    assert listing(tmp_path) == {}


@pytest.mark.parametrize("value", [2**32 - 1, float("nan"), "255", True])
def test_models_refuse_it_before_an_image_is_read(stack, value, model_file, place):
    def unread(i):
        raise AssertionError("it was read")

    given = stack, labelled.LazySequence(1, unread), labelled.LazySequence(1, unread)
    assert_refuses(labelled_for, *given, value)
    assert_refuses(hr.evaluate, *given, unlabelled=value)
    (place / "images" / "a0.png").write_bytes(b"not an image")
    request = jobs.EvaluateRequest(model_file, place / "images", place / "labels", unlabelled=value)
    assert_refuses(jobs.evaluate, request)


@pytest.mark.parametrize("value", [2**31, "255"])
def test_refinement_refuses_it(net, example, value, trained_place):
    assert_refuses(hr.refine, net, example.images, example.labels, unlabelled=value)
    files = trained_place / "images", trained_place / "labels", trained_place / "net.hedge"
    assert_refuses(jobs.refine, jobs.RefineRequest(trained_place / "model.hedge", *files, unlabelled=value))
    assert not files[-1].exists()


@pytest.mark.parametrize("value", ["4294967295", "2147483648", "-2147483649"])
def test_the_command_refuses_it(train, place, value):
    assert_refused(train(f"--unlabelled={value}"), value, "it must be a whole number")
    assert not (place / "model.hedge").exists()


@pytest.mark.parametrize("value", GOOD, ids=str)
def test_whole_numbers_of_32_bits_are_accepted_and_saved(example, tiny_config, tmp_path, value):
    labels = [np.where(one == 3, np.int32(value), one) for one in example.labels]
    stack = hr.fit_stack(example.images, labels, tiny_config, unlabelled=value, progress=silent)
    assert (stack.unlabelled, stack.classes) == (value, (77, 200))
    assert type(stack.unlabelled) is int
    hr.save(stack, tmp_path / "model.hedge")
    assert hr.load(tmp_path / "model.hedge").unlabelled == value


def test_images_with_too_many_channels_for_a_model_are_refused(monkeypatch):
    monkeypatch.setattr(given, "MAX_CHANNELS", 2)
    with pytest.raises(InputError) as problem:
        labelled_set([np.zeros((4, 5, 3))], [np.arange(20).reshape(4, 5) % 2])
    assert_one_sentence(problem, "3 channels", "at most 2")
