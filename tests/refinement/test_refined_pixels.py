"""Which pixels a refinement trains on: trimmed, cropped, on a lattice, labelled, and not held out."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow.config import UNALTERED, AugmentConfig
from hedgerow.errors import InputError
from hedgerow.forest import samples
from hedgerow.images import altering
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.regions import Region
from hedgerow.network import stacknet
from hedgerow.network.layout import Grid, Source, lattice
from hedgerow.network.mapping import to_convnet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import silent
from hedgerow.refinement import loop
from hedgerow.refinement.loop import refine
from helpers.refinements import (
    SHORT,
    assert_same_refinement,
    assert_same_weights,
    is_finite,
    record,
    run,
)
from helpers.refusals import assert_one_sentence


@pytest.fixture(scope="module")
def depth(tiny_config):
    """Depth images with an empty border, their labels, and a network."""
    images, labels = [], []
    for seed in range(2):
        image, label = draw(seed)
        image = 500 + 10 * image.astype(np.uint16)
        image[:4], image[:, 27:] = 0, 0
        images.append(image)
        labels.append(label)
    stack = hr.fit_stack(images, labels, replace(tiny_config, features="depth"))
    return images, labels, to_convnet(stack)


def test_empty_borders_of_depth_images_can_be_left_out(depth):
    images, labels, net = depth
    refined = refine(net, images, labels, replace(SHORT, trim=True), progress=silent)
    inner = [[part[4:, :27] for part in parts] for parts in (images, labels)]
    assert_same_weights(refined, refine(net, *inner, SHORT, progress=silent))
    assert hr.evaluate(refined, images, labels).mean_dice > 0.8  # nothing tells the classes of the border apart


def test_a_depth_image_that_shows_nothing_is_refused(depth):
    images, labels, net = depth
    with pytest.raises(InputError) as refusal:
        refine(net, [images[0] * 0, images[1]], labels, replace(SHORT, trim=True, held_out=0.0), progress=silent)
    assert_one_sentence(refusal, "image 0", "blank")


@pytest.mark.parametrize("crop", [None, 16])
def test_labels_in_the_empty_border_only_are_refused(depth, crop):
    images, labels, net = depth
    only_border = [np.where(image == 0, label, 255) for image, label in zip(images, labels, strict=True)]
    config = replace(SHORT, trim=True, held_out=0.0, crop=crop)
    with pytest.raises(InputError) as refusal:
        refine(net, images, only_border, config, names=["a.png", "b.png"], progress=silent)
    assert_one_sentence(refusal, "a.png", "trim")
    assert is_finite(refine(net, images, only_border, replace(config, trim=False), progress=silent))


def outputs(net, image, last):
    """The last level's scores on a grid of the image, and the grids of all levels."""
    planes = image[None].astype(np.float32)
    features = torch.from_numpy(net.features.compute(planes)[:, None])
    reach, outside = net.features.stretch(planes), net.features.outside(net.n_classes)
    source = Source(features, stretch=reach, outside=outside)
    grids = net.grids(source.extent, last)
    with torch.no_grad():
        return net(source, grids)[-1].numpy()[:, 0], grids


@pytest.fixture(scope="module")
def window_net(example, tiny_config):
    """Three levels of splits that average over boxes."""
    context = replace(tiny_config.context, radii=(1, 3), n_offsets=5)
    return to_convnet(hr.fit_stack(example.images, example.labels, replace(tiny_config, context=context, n_levels=3)))


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("corner", [(0, 0), (9, 14), (15, 21)])
@pytest.mark.parametrize("kind", ["offsets", "windows", "depth"])
def test_a_crop_says_what_the_whole_image_says_there(net, window_net, depth, example, step, corner, kind):
    net = {"offsets": net, "windows": window_net, "depth": depth[2]}[kind]
    image = depth[0][0] if kind == "depth" else example.images[0]
    height, width = image.shape
    top, left = corner
    crop = Grid(top, left, -(-min(9, height - top) // step), -(-min(10, width - left) // step), step)
    whole = lattice(height, width, step, top % step, left % step)
    in_crop, grids = outputs(net, image, crop)
    everything, wide = outputs(net, image, whole)
    assert wide == [whole] * net.n_levels, "there is nothing more of the lattice"
    row, column = top // step, left // step
    expected = everything[:, row : row + crop.height, column : column + crop.width]
    np.testing.assert_allclose(in_crop, expected, atol=0 if kind == "offsets" else 2e-5)
    if step == 1 and kind == "offsets" and corner == (9, 14):
        assert grids[0].height * grids[0].width < whole.height * whole.width, "only a part was computed"


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_grown_grid_is_the_same_lattice_within_the_image(step):
    for top, left, height, width in ((0, 0, 1, 1), (4, 7, 2, 3), (11, 3, 1, 2)):
        grid = Grid(top, left, height, width, step)
        if grid.rows[-1] > 12 or grid.columns[-1] > 17:
            continue
        for margin in (0, 1, 3, 100):
            grown = grid.grown(margin, Region(0, 13, 0, 18))
            for mine, its, size in ((grown.rows, grid.rows, 13), (grown.columns, grid.columns, 18)):
                assert set(its) <= set(mine)
                assert mine[0] >= 0
                assert mine[-1] < size
                assert (mine[0] - its[0]) % step == 0
                # As much as was asked for, or all there is.
                assert mine[0] <= its[0] - margin or mine[0] < step
                assert mine[-1] >= its[-1] + margin or mine[-1] >= size - step


@pytest.mark.parametrize(
    "change", [{"stride": 1}, {"stride": 3}, {"stride": 1000}, {"crop": 16}, {"crop": 16, "stride": 3}]
)
def test_strides_and_crops_train(net, example, change):
    refined = run(net, example, replace(SHORT, **change))
    assert is_finite(refined)
    assert not torch.equal(refined.level(0).split_weight, net.level(0).split_weight)


def test_the_number_of_pixels_decides_the_stride(net, example):
    """Images of 24 x 32: with 85 pixels every third row and column."""
    assert_same_weights(
        run(net, example, replace(SHORT, stride=None, pixels=85)), run(net, example, replace(SHORT, stride=3))
    )
    # What was given comes before what is reckoned.
    both = run(net, example, replace(SHORT, pixels=85, stride=1))
    assert_same_weights(both, run(net, example, replace(SHORT, stride=1)))


def test_the_record_says_how_many_pixels_were_asked_for(net, example):
    for changes, pixels in (({}, 8000), ({"pixels": 100}, 100), ({"stride": 2}, None)):
        config = replace(SHORT, **{"stride": None, **changes})
        assert record(run(net, example, config)).config["pixels"] == pixels


@pytest.mark.parametrize(
    ("backend", "connections", "pixels"),
    [("gpu", "frozen", 131_072), ("gpu", "sparse", 8000), ("definition", "frozen", 8000)],
)
def test_a_gpu_without_kernels_for_the_network_is_given_few(net, monkeypatch, backend, connections, pixels):
    """The plain definition takes seconds for hundreds of pixels, there too."""
    mapped = to_convnet(net.stack, connections=connections)
    there = torch.nn.Module.to(mapped, "meta")  # stands for a device that is not the CPU
    monkeypatch.setattr(stacknet, "backend_for", lambda device: SimpleNamespace(name=backend))
    assert loop.default_pixels(there) == pixels


@pytest.mark.parametrize("change", [{"stride": 4}, {"stride": 7, "crop": 16}, {"stride": 2, "augment": UNALTERED}])
@pytest.mark.parametrize("seed", range(3))
def test_scribbles_between_the_lines_of_the_lattice_train(net, example, change, seed):
    scribbles = []
    for labels in example.labels:
        few = np.full_like(labels, 255)
        few[5, 3], few[7, 13:15], few[19, 29] = labels[5, 3], labels[7, 13:15], labels[19, 29]
        scribbles.append(few)
    config = replace(SHORT, held_out=0.0, seed=seed, **change)
    refined = refine(net, example.images, scribbles, config, progress=silent)
    assert is_finite(refined)
    assert not torch.equal(refined.level(1).vote_weight, net.level(1).vote_weight)
    for check in record(refined).checks[1:]:
        assert np.isfinite(check.loss)


def test_one_labelled_pixel_in_one_image_is_enough(net, example):
    labels = np.full_like(example.labels[0], 255)
    labels[11, 17] = example.labels[0][11, 17]
    config = replace(SHORT, crop=16, stride=5, augment=AugmentConfig(shift=0.9, rotation=180.0))
    refined = refine(net, [example.images[0]], [labels], config, progress=silent)
    assert is_finite(refined)
    assert record(refined).scores == {}, "nothing could be held out"


def test_what_stands_at_unlabelled_pixels_changes_nothing(net, example, tmp_path):
    """Whatever value says that there is no label."""
    hidden = np.random.default_rng(0).random(example.labels[0].shape) < 0.5
    results = []
    for value in (255, -7, 12):
        labels = [np.where(hidden, value, label) for label in example.labels]
        results.append(refine(net, example.images, labels, SHORT, unlabelled=value, progress=silent))
    assert_same_refinement(results[1], results[0], tmp_path)
    assert_same_refinement(results[2], results[0], tmp_path)
    assert not torch.equal(run(net, example).level(1).vote_weight, results[0].level(1).vote_weight)


def test_held_out_pixels_do_not_train(net, example, tmp_path):
    """The labels that only decide when to stop may say anything: the network comes out the same."""
    config = replace(SHORT, patience=100)
    _, held = samples.hold_out(labelled_for(net, example.images, example.labels), SHORT.held_out, SHORT.seed)
    wrong = []
    for labels, image in zip(example.labels, held, strict=True):
        wrong.append(np.where(image.target == 255, labels, CLASSES[2]))
        assert (wrong[-1] != labels).any()
    assert_same_weights(refine(net, example.images, wrong, config, progress=silent), run(net, example, config))


@pytest.mark.parametrize(("n_images", "n_held"), [(5, 4), (35, 32), (60, 32)])
def test_of_many_images_some_score(n_images, n_held):
    target = np.zeros((2, 3), np.uint8)
    images = [LabelledImage(np.full((1, 2, 3), i, np.float32), target) for i in range(n_images)]
    kept, held = samples.hold_out(LabelledSet(images, (0, 1)), 0.9, 0)
    assert len(held) == n_held
    numbers = [int(image.planes[0, 0, 0]) for image in (*kept, *held)]
    assert sorted(numbers) == list(range(n_images))


def test_images_of_different_sizes_train_together(net):
    drawn = [draw(0), draw(1, size=(31, 20)), draw(2, size=(17, 40)), draw(3, size=(1, 50)), draw(4)]
    images, labels = [image for image, _ in drawn], [label for _, label in drawn]
    for change in ({}, {"crop": 16}, {"stride": 1}):
        refined = refine(net, images, labels, replace(SHORT, held_out=0.3, **change), progress=silent)
        assert is_finite(refined)
        assert record(refined).refined > 0.9


def test_an_image_that_is_not_altered_trains_as_it_is():
    image = LabelledImage(np.zeros((1, 2, 3), np.float32), np.zeros((2, 3), np.uint8))
    assert altering.altered(image, UNALTERED, np.random.default_rng(0), None) is image


@pytest.mark.parametrize("margin", [(0, 3, 3), (2, 0, 0), (9, 1, 1)])
def test_a_grid_of_a_volume_grows_by_slices_as_well(margin):
    grid = Grid(4, 5, 2, 3, 2, front=3, depth=2)
    grown = grid.grown(margin, Region(0, 13, 0, 18, 0, 7))
    assert (grown.front, grown.front + grown.depth) == (max(3 - margin[0], 0), min(5 + margin[0], 7))
    image = grid.grown((0, *margin[1:]), Region(0, 13, 0, 18, 3, 5))
    assert (grown.rows.tolist(), grown.columns.tolist()) == (image.rows.tolist(), image.columns.tolist())
