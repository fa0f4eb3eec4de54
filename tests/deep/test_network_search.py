"""Which convolutional network suits some images."""

import dataclasses
import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import network_search, recipe
from hedgerow.deep.folds import search_folds
from hedgerow.deep.network_search import choose, in_words
from hedgerow.deep.network_training import train_network
from hedgerow.deep.refinement_search import TURNED
from hedgerow.images.given import labelled_set
from hedgerow.progress import silent
from helpers.deep import SMALL, pictures, small_net, small_recipe


def test_normalisations_are_tried_in_the_first_size_and_sizes_with_the_better_one():
    worth = {(16, "batch", 64): 0.3, (16, "image", 64): 0.5, (32, "image", 64): 0.4}

    def dice(conv):
        return worth[conv.base, conv.norm, conv.crop]

    best, tried = choose(SMALL, 9, (16, 32), ("batch", "image"), (64,), dice)
    assert tried == worth
    assert (best.base, best.norm, best.n_steps) == (16, "image", SMALL.n_steps)
    assert "32 channels normalised over each image 0.400" in in_words(tried)
    worth |= {(16, "image", 128): 0.6}
    best, tried = choose(SMALL, 9, (16, 32), ("batch", "image"), (64, 128), dice)
    assert tried == worth, "larger crops are tried with the best of the rest"
    assert (best.base, best.norm, best.crop) == (16, "image", 128)
    assert "0.400, 16 channels normalised over each image in crops of 128 pixels 0.600" in in_words(tried)
    best, tried = choose(SMALL, 9, (8,), ("batch",), (64,), lambda conv: pytest.fail("nothing to choose"))
    assert (best.base, tried) == (8, {})
    best, tried = choose(SMALL, 9, (16,), ("image",), (64, 128), dice)
    assert (best.crop, set(tried)) == (128, {(16, "image", 64), (16, "image", 128)})


@pytest.mark.parametrize(
    ("sizes", "crops"),
    [(((95, 400),), (64,)), (((96, 96),), (64, 128)), (((60, 300), (300, 60)), (64, 128))],
)
def test_larger_crops_are_tried_where_images_are_larger(sizes, crops):
    conv = dataclasses.replace(SMALL, crop=64)
    labelled = labelled_set([np.zeros(size) for size in sizes], [np.eye(*size, dtype=np.uint8) for size in sizes])
    assert network_search.crops_for(conv, labelled) == crops
    assert network_search.n_tried(conv, labelled) == 2 + len(crops), "two normalisations, another size, larger crops"


def choose_small(n_images=4, *, is_timed=False, train=train_network):
    """`choose_network` of settings whose crops are small for these images; train: in place of `train_network`"""
    images, labels = pictures(n_images)
    recipe = small_recipe(labelled_set(images, labels), members=("alone",), train_network=train)
    return network_search.choose_network(small_net(images, labels), recipe, "cpu", is_timed, silent)


@pytest.mark.parametrize("is_measuring", [False, True])
def test_crops_that_do_not_fit_into_memory_are_not_taken(is_measuring):
    def failing(error, from_crop):
        def train(network, sheets, config, score=None, **options):
            if config.crop >= from_crop and (score is None) == is_measuring:
                raise error
            return train_network(network, sheets, config, score, **options)

        return train

    config, tried = choose_small(train=failing(torch.OutOfMemoryError("CUDA out of memory"), 32))
    assert config.conv.crop == 16
    assert [dice for (_, _, crop), dice in tried.items() if crop == 32] == [None]
    assert in_words(tried).endswith("in crops of 32 pixels did not fit into memory")
    with pytest.raises(RuntimeError, match="something else"):
        choose_small(train=failing(RuntimeError("something else"), 32))
    if not is_measuring:
        with pytest.raises(torch.OutOfMemoryError):
            choose_small(train=failing(torch.OutOfMemoryError("CUDA out of memory"), 16))


def test_nothing_of_crops_that_did_not_fit_stays_in_memory():
    """The error that ends a training refers to its frames, and they to the network."""
    networks = []

    def short_of_memory(network, sheets, config, score=None, **options):
        if config.crop == 16 or score is None:
            return train_network(network, sheets, config, score, **options)
        networks.append(weakref.ref(network))
        raise torch.OutOfMemoryError("CUDA out of memory")

    gc.disable()  # it must not depend on when the collector happens to run
    try:
        choose_small(train=short_of_memory)
    finally:
        gc.enable()
    assert [network() for network in networks] == [None]


@pytest.mark.parametrize(("is_timed", "steps"), [(False, 4), (True, 1)])
def test_larger_crops_are_tried_for_as_long_if_time_is_short(is_timed, steps):
    seen = {}

    def train(network, sheets, config, score=None, **options):
        if score is not None:
            seen[config.crop] = config.n_steps
        return train_network(network, sheets, config, score, **options)

    config, _ = choose_small(is_timed=is_timed, train=train)
    assert seen == {16: 4, 32: steps}
    assert config.conv.n_steps == 4, "how many the networks have is planned afterwards"


def test_few_images_get_larger_batches_and_lower_rates_unless_each_is_normalised_by_itself():
    usual = hr.ConvConfig()
    assert recipe.for_number(usual, 5) == usual
    few = recipe.for_number(usual, 4)
    assert (few.batch, few.learning_rate) == (8, pytest.approx(1e-3))
    by_image = hr.ConvConfig(norm="image")
    assert recipe.for_number(by_image, 2) == by_image
    only_one = recipe.for_number(by_image, 1)
    assert (only_one.batch, only_one.learning_rate) == (8, pytest.approx(1e-3))
    only, _ = choose(usual, 4, (16,), ("batch",), (256,), lambda conv: pytest.fail("nothing to choose"))
    assert only == few
    tried = []
    choose(usual, 4, (16, 8), ("batch", "image"), (256,), lambda conv: tried.append(conv) or float(len(tried)))
    assert [(conv.base, conv.norm, conv.batch) for conv in tried] == [
        (16, "batch", 8),
        (16, "image", 4),
        (8, "image", 4),
    ]


def test_depths_are_altered_more_than_other_images():
    usual = hr.ConvConfig()
    assert recipe.for_images(usual, is_depth=False) == usual
    deep = recipe.for_images(usual, is_depth=True)
    assert deep.augment == recipe.DEPTH_AUGMENT
    assert recipe.DEPTH_AUGMENT.rotation > usual.augment.rotation
    from_above = recipe.for_images(hr.ConvConfig(augment=TURNED), is_depth=True).augment
    assert (from_above.rotation, from_above.flip) == (180.0, True), "images without an up still have none"
    assert (from_above.brightness, from_above.scale) == (recipe.DEPTH_AUGMENT.brightness, recipe.DEPTH_AUGMENT.scale)


@pytest.mark.parametrize("n_images", [2, 8])
def test_a_network_is_judged_by_what_it_did_not_see(n_images):
    labelled, n_learned = labelled_set(*pictures(n_images)), []

    def train(network, sheets, config, score=None, **options):
        if score is not None:  # and not those that are trained to see whether they fit
            n_learned.append(sum(len(sheet.labelled_places) for sheet in sheets))
        return train_network(network, sheets, config, score, **options)

    config, tried = choose_small(n_images, train=train)
    assert [crop for _, _, crop in tried] == [16, 16, 16, 32], "two normalisations, another size, larger crops"
    assert max(tried, key=lambda settings: tried[settings]) == (config.conv.base, config.conv.norm, config.conv.crop)
    folds = search_folds(labelled, seed=2)
    n_held = sum(int((part == 0).sum()) for part in folds.parts)
    n_pixels = sum(image.target.size for image in labelled)
    assert n_learned == [n_pixels - n_held] * len(tried), "it learns from all but the fold"
    assert 0 < n_held < n_pixels
