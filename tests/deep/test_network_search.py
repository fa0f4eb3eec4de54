"""Which convolutional network suits some images."""

import dataclasses
import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import network_search, recipe
from hedgerow.deep.network_search import choose, in_words
from hedgerow.deep.refinement_search import TURNED
from hedgerow.images.labelled import labelled_set
from hedgerow.progress import silent
from helpers.deep import SMALL, pictures, small_net


def test_normalisations_are_tried_in_the_first_size_and_sizes_with_the_better_one():
    worth = {(16, "batch", 64): 0.3, (16, "image", 64): 0.5, (32, "image", 64): 0.4}

    def dice(conv):
        return worth[conv.base, conv.norm, conv.crop]

    found, tried = choose(SMALL, 9, (16, 32), ("batch", "image"), (64,), dice)
    assert tried == worth
    assert (found.base, found.norm, found.n_steps) == (16, "image", SMALL.n_steps)
    assert "32 channels normalised over each image 0.400" in in_words(tried)
    worth |= {(16, "image", 128): 0.6}
    found, tried = choose(SMALL, 9, (16, 32), ("batch", "image"), (64, 128), dice)
    assert tried == worth, "larger crops are tried with the best of the rest"
    assert (found.base, found.norm, found.crop) == (16, "image", 128)
    assert "0.400, 16 channels normalised over each image in crops of 128 pixels 0.600" in in_words(tried)
    found, tried = choose(SMALL, 9, (8,), ("batch",), (64,), lambda conv: pytest.fail("nothing to choose"))
    assert (found.base, tried) == (8, {})
    found, tried = choose(SMALL, 9, (16,), ("image",), (64, 128), dice)
    assert (found.crop, set(tried)) == (128, {(16, "image", 64), (16, "image", 128)})


@pytest.mark.parametrize(
    ("sizes", "crops"),
    [(((95, 400),), (64,)), (((96, 96),), (64, 128)), (((60, 300), (300, 60)), (64, 128))],
)
def test_larger_crops_are_tried_where_images_are_larger(sizes, crops):
    conv = dataclasses.replace(SMALL, crop=64)
    labelled = labelled_set([np.zeros(size) for size in sizes], [np.eye(*size, dtype=np.uint8) for size in sizes])
    assert network_search.crops_for(conv, labelled) == crops
    assert network_search.n_tried(conv, labelled) == 2 + len(crops), "two normalisations, another size, larger crops"


def large(n_images=4):
    """Settings whose crops are small for these images, and what `choose_network` wants."""
    images, labels = pictures(n_images)
    config = hr.DeepConfig(members=("alone",), conv=dataclasses.replace(SMALL, crop=16))
    return small_net(images, labels), labelled_set(images, labels), config


@pytest.mark.parametrize("method", ["train", "seconds_of_a_step"])
def test_crops_that_do_not_fit_into_memory_are_not_taken(monkeypatch, method):
    given, real = large(), getattr(network_search.MemberNets, method)

    def failing(error, from_crop):
        def fail(self, *some):
            if self.config.conv.crop >= from_crop:
                raise error
            return real(self, *some)

        monkeypatch.setattr(network_search.MemberNets, method, fail)

    failing(torch.OutOfMemoryError("CUDA out of memory"), 32)
    found, tried = network_search.choose_network(*given, "cpu", progress=silent)
    assert found.conv.crop == 16
    assert [dice for (_, _, crop), dice in tried.items() if crop == 32] == [None]
    assert in_words(tried).endswith("in crops of 32 pixels did not fit into memory")
    failing(RuntimeError("something else"), 32)
    with pytest.raises(RuntimeError, match="something else"):
        network_search.choose_network(*given, "cpu", progress=silent)
    if method == "train":
        failing(torch.OutOfMemoryError("CUDA out of memory"), 16)
        with pytest.raises(torch.OutOfMemoryError):
            network_search.choose_network(*given, "cpu", progress=silent)


def test_nothing_of_crops_that_did_not_fit_stays_in_memory(monkeypatch):
    """The error that ends a training holds its frames, and they hold it."""
    given, real, kept = large(), network_search.MemberNets._trained, []

    def short_of_memory(self, task, stop, advance):
        if self.config.conv.crop == 16:
            return real(self, task, stop, advance)
        network = torch.nn.Linear(1, 1)
        kept.append(weakref.ref(network))
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(network_search.MemberNets, "_trained", short_of_memory)
    gc.disable()  # it must not depend on when the collector happens to run
    try:
        network_search.choose_network(*given, "cpu", progress=silent)
    finally:
        gc.enable()
    assert [one() for one in kept] == [None]


@pytest.mark.parametrize(("is_timed", "steps"), [(False, 4), (True, 1)])
def test_larger_crops_are_tried_for_as_long_if_time_is_short(monkeypatch, is_timed, steps):
    given, real, seen = large(), network_search.MemberNets._trained, {}

    def trained(self, task, stop, advance):
        seen[self.config.conv.crop] = self.config.conv.n_steps
        return real(self, task, stop, advance)

    monkeypatch.setattr(network_search.MemberNets, "_trained", trained)
    found, _ = network_search.choose_network(*given, "cpu", is_timed, silent)
    assert seen == {16: 4, 32: steps}
    assert found.conv.n_steps == 4, "how many the networks have is planned afterwards"


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
def test_a_network_is_judged_by_what_it_did_not_see(monkeypatch, n_images):
    images, labels = pictures(n_images)
    labelled, seen = labelled_set(images, labels), []
    monkeypatch.setattr(network_search, "SIZES", (2, 3))
    real = network_search.MemberNets._begun

    def begun(self, task):
        found = real(self, task)
        n_held = sum(int((part == 0).sum()) for part in self.folds.parts)
        if (task.number, task.fold) == (0, 0):  # and not those that are begun to see whether they fit
            seen.append((task.fold, sum(len(sheet.labelled_places) for sheet in found[1]) + n_held, n_held))
        return found

    monkeypatch.setattr(network_search.MemberNets, "_begun", begun)
    config = hr.DeepConfig(conv=SMALL)
    found, tried = network_search.choose_network(small_net(images, labels), labelled, config, "cpu", progress=silent)
    assert [crop for _, _, crop in tried] == [16, 16, 16, 32], "two normalisations, another size, larger crops"
    assert max(tried, key=lambda one: tried[one]) == (found.conv.base, found.conv.norm, found.conv.crop)
    n_pixels = sum(image.target.size for image in labelled)
    assert [one[:2] for one in seen] == [(0, n_pixels)] * len(tried), "it learns from all but the fold"
    assert 0 < seen[0][2] < n_pixels
