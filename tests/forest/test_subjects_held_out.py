"""Images of one subject stay on one side of every split."""

import dataclasses

import numpy as np
import pytest

import hedgerow as hr
from conftest import draw
from hedgerow.errors import InputError
from hedgerow.forest.samples import hold_out, split_reserved, with_groups
from hedgerow.images.given import labelled_set
from hedgerow.images.subjects import grouped
from hedgerow.progress import quiet, silent

MANY = ["a", "a", "b", "c", "c", "c", "d", "e", "b", ""]  # six subjects
FEW = ["a", "a", "a", "b", "b", "a"]


def labelled(subjects):
    images, labels = zip(*(draw(i) for i in range(len(subjects))), strict=True)
    return grouped(labelled_set(images, labels), subjects, quiet)


def sides(first, second):
    """The subjects on both sides of a split."""
    return ({image.subject or image.name for image in side} for side in (first, second))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("split", [hold_out, split_reserved])
def test_a_split_keeps_subjects_whole(split, seed):
    train, held = split(labelled(MANY), 0.3, seed)
    here, there = sides(train, held)
    assert not here & there
    assert there
    assert len(train) + len(held) == len(MANY)


def test_the_only_subject_cannot_be_reserved():
    with pytest.raises(InputError, match="one of the only group"):
        split_reserved(labelled(["a"] * 5), 0.3, 0)


@pytest.mark.parametrize("seed", range(3))
def test_blocks_of_few_subjects_are_held_out_at_the_same_place_in_all_their_images(seed):
    train, held = hold_out(labelled(FEW), 0.3, seed)
    places = {}
    for image in held:
        places.setdefault(image.subject, []).append(image.target != 255)
    for masks in places.values():
        assert all(np.array_equal(mask, masks[0]) for mask in masks)
    for image in train:
        assert not (places[image.subject][0] & (image.target != 255)).any()


@pytest.mark.parametrize("subjects", [MANY, FEW])
def test_the_groups_of_a_stack_are_those_of_subjects(subjects, tiny_config):
    together = labelled(subjects)
    kind, images = with_groups(together, tiny_config, None)
    assert kind == ("images" if subjects is MANY else "blocks")
    groups = [set(np.unique(image.group).tolist()) for image in images[: len(subjects)]]  # altered copies follow
    for i, own in enumerate(groups):
        for k, other in enumerate(groups):
            same = i == k or (subjects[i] and subjects[i] == subjects[k])
            assert own == other if same else not own & other


@pytest.mark.parametrize("shift", [0, 3])
def test_strokes_at_the_same_place_of_neighbouring_slices_are_held_out_together(tiny_config, shift):
    """Also if all strokes of a class touch one another once the slices are laid upon one another."""
    images, labels = [], []
    for slice in range(4):
        image = np.random.default_rng(slice).random((64, 64), np.float32)
        strokes = np.full(image.shape, 255, np.uint8)
        strokes[5 + shift * slice : 8 + shift * slice, 3:-3] = 0
        for row in (24, 36):
            strokes[row, 3:9] = strokes[row, 15:21] = 1
        images.append(image)
        labels.append(strokes)
    alone, together = (
        with_groups(grouped(labelled_set(images, labels), groups, quiet), tiny_config, None)
        for groups in (["a", "b", "c", "c"], ["a"] * 4)
    )
    assert alone[0] == together[0] == "strokes"
    groups = [image.group for image in together[1][:4]]
    for value in (0, 1):
        painted = [label == value for label in labels]
        assert {int(g) for group, mask in zip(groups, painted, strict=True) for g in group[mask]} == {0, 1}
        for i in range(4):
            for k in range(i):
                both = painted[i] & painted[k]
                np.testing.assert_array_equal(groups[i][both], groups[k][both])
    assert any(
        (alone[1][i].group[labels[i] == 1] != alone[1][0].group[labels[i] == 1]).any() for i in range(4)
    )  # each subject on its own


def test_singles_make_the_same_model_as_before_groups(example, tiny_config):
    alone = hr.fit_stack(example.images, example.labels, tiny_config, groups="none", progress=silent)
    named = hr.fit_stack(
        example.images, example.labels, tiny_config, groups=range(len(example.images)), progress=silent
    )
    np.testing.assert_array_equal(alone.predict_proba(example.images[0]), named.predict_proba(example.images[0]))


def test_slices_of_one_patient_do_not_flatter_the_held_out_score():
    """Eight copies of each of four images: without groups, each copy is predicted by trees that saw the others."""
    images, labels, groups = [], [], []
    for patient in range(4):
        image, label = draw(patient)
        rng = np.random.default_rng(patient)
        label = rng.permutation(label.ravel()).reshape(label.shape)  # nothing that could be learned for another patient
        for _ in range(8):
            images.append(image + rng.normal(0, 0.01, image.shape).astype(np.float32))
            labels.append(label)
            groups.append(patient)
    config = hr.StackConfig(n_levels=1, n_trees=4, min_split=2, sampling=hr.SamplingConfig(step=1))
    flattered, honest = (
        hr.fit_stack(images, labels, config, groups=some, progress=silent).held_out_dice[0] for some in ("none", groups)
    )
    assert flattered > honest + 0.2


def test_parts_of_large_images_have_the_groups_of_whole_ones(tmp_path, monkeypatch):
    from hedgerow import jobs
    from hedgerow.scale import sparse_growth
    from helpers.files import write

    for i in range(6):
        image, label = draw(i)
        write(tmp_path / "images" / f"{'ab'[i % 2]}_{i}.tif", image)
        sparse = np.full(label.shape, 255, np.uint8)
        sparse[::9, ::4] = label[::9, ::4]
        write(tmp_path / "labels" / f"{'ab'[i % 2]}_{i}.tif", sparse)
    config = hr.StackConfig(
        n_levels=1, n_trees=2, context=hr.ContextConfig(window=3), sampling=hr.SamplingConfig(step=1)
    )
    request = jobs.TrainRequest(
        tmp_path / "images", tmp_path / "labels", tmp_path / "whole.hedge", config=config, groups="^."
    )
    whole = jobs.train(request, progress=silent).model
    monkeypatch.setattr(sparse_growth, "LARGE_SET_PIXELS", 1)
    monkeypatch.setattr(sparse_growth, "MAX_LOADED_FRACTION", 2.0)
    messages = []
    parts = jobs.train(
        dataclasses.replace(request, output=tmp_path / "parts.hedge"), say=messages.append, progress=silent
    ).model
    assert any("of their pixels are loaded" in message for message in messages)
    assert parts.settings["held_out"] == whole.settings["held_out"]
