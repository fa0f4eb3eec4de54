"""Inner layers that are recorded while models are measured, and models that share features."""

from dataclasses import replace

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.images.labelled import LabelledImage
from hedgerow.images.regions import Region
from hedgerow.report.layer_maps import MAX_CROP, MAX_CROP_DRAWN, LayerCrop, LayerRecorder, choose_crop
from hedgerow.report.measure import same_features, same_input_groups, same_stack


@pytest.mark.parametrize("step", [1, 2, 3, 7])
@pytest.mark.parametrize("tile", [1, 5, 6, 32])
@pytest.mark.parametrize("region", [Region(0, 24, 0, 32), Region(5, 19, 7, 31), Region(11, 12, 3, 4)], ids=str)
def test_a_crop_filled_by_tiles_holds_every_nth_pixel_of_the_whole(stack, step, tile, region):
    outputs = list(np.random.default_rng(0).random((2, 3, 24, 32)).astype(np.float32))
    crop = LayerCrop(0, region, step, (stack.classes[2], stack.classes[0]))
    recorder = LayerRecorder(crop, stack)
    for top in range(0, 24, tile):
        for left in range(0, 32, tile):
            part = Region(top, min(top + tile, 24), left, min(left + tile, 32))
            recorder.add([part.of(output) for output in outputs], part)
    for level, output in zip(recorder.levels(), outputs, strict=True):
        whole = crop.thinned(output)
        np.testing.assert_array_equal(level.maps, whole[[2, 0]])
        np.testing.assert_array_equal(level.labels, np.array(stack.classes)[whole.argmax(axis=0)])


def labelled(*targets):
    return [LabelledImage(np.zeros((1, *target.shape), np.float32), target) for target in targets]


def test_the_image_with_the_most_classes_is_drawn():
    few, many = np.zeros((4, 5), np.uint8), np.zeros((4, 5), np.uint8)
    many[0, :3] = (1, 2, 255)
    crop = choose_crop(labelled(few, many, many), (10, 20, 30))
    assert (crop.image, crop.region, crop.step) == (1, Region(0, 4, 0, 5), 1)
    assert crop.classes == (10, 20, 30)


def test_the_middle_of_a_large_image_is_drawn_thinned():
    target = np.full((MAX_CROP + 12, 6), 255, np.uint8)  # no label in the middle
    target[0] = 1
    crop = choose_crop(labelled(target), (10, 20))
    assert crop.region == Region(6, MAX_CROP + 6, 0, 6)
    assert crop.step == 2
    assert crop.thinned(target).shape == (MAX_CROP_DRAWN, 3)


def copied(forest):
    return replace(forest, votes=forest.votes.copy())


def test_stacks_are_the_same_if_their_arrays_are(stack):
    again = replace(stack, levels=tuple(map(copied, stack.levels)), settings={})
    assert same_stack(stack, again)
    again.levels[1].votes[0] += 1
    assert not same_stack(stack, again)
    assert not same_stack(stack, replace(stack, levels=stack.levels[:1]))


def test_models_that_read_the_same_features_are_run_together(stack, example, tiny_config):
    pytest.importorskip("torch")
    net = hr.to_convnet(stack)
    other = hr.fit_stack(example.images, example.labels, replace(tiny_config, sigmas=(1.0,)))
    shifted = replace(stack, features=replace(stack.features, mean=stack.features.mean + 1))
    assert same_features(stack.features, replace(stack.features, mean=stack.features.mean.copy()))
    models = [stack, other, net, shifted, hr.to_forest(net, method="weights")]
    assert same_input_groups(models) == [[0, 2, 4], [1], [3]]
