"""Which convolutional network suits some images."""

import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import choosing, fitting
from hedgerow.deep.adapting import TURNED
from hedgerow.images.labelled import labelled_set
from hedgerow.progress import silent
from helpers.deep import SMALL, pictures, small_net


def test_normalisations_are_tried_in_the_first_size_and_sizes_with_the_better_one():
    worth = {(16, "batch"): 0.3, (16, "image"): 0.5, (32, "image"): 0.4}
    found, tried = choosing.choose(SMALL, 9, (16, 32), ("batch", "image"), lambda conv: worth[conv.base, conv.norm])
    assert tried == worth
    assert (found.base, found.norm, found.n_steps) == (16, "image", SMALL.n_steps)
    assert "32 channels normalised over each image 0.400" in choosing.in_words(tried)
    found, tried = choosing.choose(SMALL, 9, (8,), ("batch",), lambda conv: pytest.fail("there is nothing to choose"))
    assert (found.base, tried) == (8, {})


def test_few_images_get_larger_batches_and_lower_rates_unless_each_is_normalised_by_itself():
    usual = hr.ConvConfig()
    assert choosing.for_number(usual, 5) == usual
    few = choosing.for_number(usual, 4)
    assert (few.batch, few.learning_rate) == (8, pytest.approx(1e-3))
    by_image = hr.ConvConfig(norm="image")
    assert choosing.for_number(by_image, 2) == by_image
    only_one = choosing.for_number(by_image, 1)
    assert (only_one.batch, only_one.learning_rate) == (8, pytest.approx(1e-3))
    only, _ = choosing.choose(usual, 4, (16,), ("batch",), lambda conv: pytest.fail("there is nothing to choose"))
    assert only == few
    tried = []
    choosing.choose(usual, 4, (16, 8), ("batch", "image"), lambda conv: tried.append(conv) or float(len(tried)))
    assert [(conv.base, conv.norm, conv.batch) for conv in tried] == [
        (16, "batch", 8),
        (16, "image", 4),
        (8, "image", 4),
    ]


def test_depths_are_altered_more_than_other_images():
    usual = hr.ConvConfig()
    assert choosing.for_images(usual, is_depth=False) == usual
    deep = choosing.for_images(usual, is_depth=True)
    assert deep.augment == choosing.DEPTH
    assert choosing.DEPTH.rotation > usual.augment.rotation
    from_above = choosing.for_images(hr.ConvConfig(augment=TURNED), is_depth=True).augment
    assert (from_above.rotation, from_above.flip) == (180.0, True), "images without an up still have none"
    assert (from_above.brightness, from_above.scale) == (choosing.DEPTH.brightness, choosing.DEPTH.scale)


@pytest.mark.parametrize("n_images", [2, 8])
def test_a_network_is_judged_by_what_it_did_not_see(monkeypatch, n_images):
    images, labels = pictures(n_images)
    labelled, seen = labelled_set(images, labels), []
    monkeypatch.setattr(fitting, "SIZES", (2, 3))
    real = fitting.MemberNets._begun

    def begun(self, task):
        found = real(self, task)
        n_held = sum(int((part == 0).sum()) for part in self.folds.parts)
        seen.append((task.fold, sum(len(sheet.labelled_places) for sheet in found[1]) + n_held, n_held))
        return found

    monkeypatch.setattr(fitting.MemberNets, "_begun", begun)
    config = hr.DeepConfig(conv=SMALL)
    found, tried = fitting.choose_network(small_net(images, labels), labelled, config, "cpu", silent)
    assert len(tried) == choosing.N_TRIED
    assert max(tried, key=lambda one: tried[one]) == (found.conv.base, found.conv.norm)
    n_pixels = sum(image.target.size for image in labelled)
    assert [one[:2] for one in seen] == [(0, n_pixels)] * choosing.N_TRIED, "it learns from all but the fold"
    assert 0 < seen[0][2] < n_pixels
