"""The recipe of a convolutional level: what follows from settings and images."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import ensemble_weights
from hedgerow.deep.member_kinds import MEMBER_KINDS
from hedgerow.deep.recipe import Recipe
from hedgerow.images.given import labelled_set
from hedgerow.images.subjects import grouped
from hedgerow.progress import quiet
from helpers.deep import SMALL, pictures

CONFIG = hr.DeepConfig(n_folds=3, n_networks=2, left_out=8, conv=SMALL, seed=4)


def recipe(n_images, **changes):
    return Recipe(replace(CONFIG, **changes), labelled_set(*pictures(n_images)), has_encoder=False)


def test_settings_offer_the_kinds_of_members():
    assert tuple(MEMBER_KINDS) == hr.DeepConfig().members


def test_with_few_images_nothing_reads_the_stack_and_it_is_grown_again_once():
    few, usual = recipe(4), recipe(9)
    assert (few.has_few_images, few.members, few.n_regrown_stacks) == (True, ["alone"], 1)
    assert few.stack_folds is few.network_folds
    assert few.min_gain == ensemble_weights.MIN_GAIN_FEW_IMAGES
    assert (usual.has_few_images, usual.members, usual.n_regrown_stacks) == (False, ["alone", "reading"], 3)
    assert (usual.stack_folds.n_folds, usual.network_folds.n_folds) == (3, 8)
    assert [usual.reads_stack(member) for member in usual.members] == [False, True]


def test_each_judge_scores_the_images_of_its_own_fold():
    usual = recipe(9)
    folds = [task.fold for task in usual.tasks if task.member == "alone" and task.fold is not None]
    assert folds == [0, 1]
    assert usual.judged == [(i, fold) for fold in folds for i in usual.network_folds.held(fold)]
    assert usual.n_judged_images == len(usual.judged)
    assert usual.min_gain == ensemble_weights.MIN_GAIN_HANDICAPPED
    many = recipe(40, left_out=2)
    assert many.n_judged_images == 40
    assert many.min_gain is None
    of_nine = replace(many, labelled=grouped(many.labelled, [i % 9 for i in range(40)], quiet))
    assert (of_nine.n_judged_images, of_nine.n_judged_subjects) == (40, 9)
    assert of_nine.min_gain == ensemble_weights.MIN_GAIN_HANDICAPPED


def test_every_network_counts_the_same_and_the_stack_unless_all_read_it():
    assert recipe(9).equal_weights() == {"stack": 0.2, "alone": 0.4, "reading": 0.4}
    assert recipe(9, members=("reading",)).equal_weights() == {"stack": 0, "reading": 1}


def test_networks_differ_in_seed_and_every_other_reading_one_in_how_often_it_reads():
    usual = recipe(9)
    convs = {(task.member, task.number): usual.conv_for(task) for task in usual.tasks}
    assert [convs["alone", number].seed for number in range(4)] == [4000, 4001, 4002, 4003]
    assert [convs["reading", number].drop for number in range(4)] == [0.0, SMALL.drop, 0.0, SMALL.drop]
    assert {convs["alone", number].drop for number in range(4)} == {SMALL.drop}
