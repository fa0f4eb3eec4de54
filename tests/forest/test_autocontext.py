"""Auto-context: training, determinism, held-out predictions, every kind of feature and image."""

import dataclasses

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import threads
from hedgerow.errors import InputError
from hedgerow.forest import autocontext as stack_module
from hedgerow.forest import samples as samples_module
from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import run_forest
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import LabelledSet
from hedgerow.progress import silent
from helpers.blobs import SMALL, blobs


def grouped(images, labels, config):
    """The training images with their copies and groups, as growing gets them."""
    return samples_module.with_groups(labelled_set(images, labels), config, None)[1]


def arrays_of(stack):
    parts = [getattr(forest, field.name) for forest in stack.levels for field in dataclasses.fields(forest)]
    return [np.asarray(part) for part in parts]


@pytest.mark.parametrize("features", ["bank", "depth"])
@pytest.mark.parametrize("held_out", ["trees", "folds", "none"])
def test_same_seed_same_model_on_any_number_of_threads(features, held_out):
    images, labels = blobs(dtype=np.uint16)
    config = dataclasses.replace(SMALL, features=features, held_out=held_out, n_folds=2)
    with threads.threads(1):
        expected = hr.fit_stack(images, labels, config)
    with threads.threads(3):
        three = hr.fit_stack(images, labels, config)
    other = hr.fit_stack(images, labels, dataclasses.replace(config, seed=1))
    for a, b in zip(arrays_of(expected), arrays_of(three), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(a.shape != b.shape or (a != b).any() for a, b in zip(arrays_of(expected), arrays_of(other), strict=True))


@pytest.mark.parametrize(("channels", "dtype"), [(0, np.uint8), (3, np.uint16), (5, np.float32)])
def test_it_learns_grey_colour_and_many_channels_of_different_sizes(channels, dtype):
    images, labels = blobs(6, channels=channels, dtype=dtype)
    stack = hr.fit_stack(images[:5], labels[:5], SMALL)
    scores = hr.evaluate(stack, images[5:], labels[5:])
    assert scores.mean_dice > 0.75
    assert stack.predict(images[5]).shape == labels[5].shape
    assert stack.n_levels == 2
    assert stack.levels[1].n_channels == stack.features.n_features + 3


def test_a_level_reads_the_level_before_at_offsets():
    images, labels = hr.synthetic.somites(4, size=(80, 80))
    stack = hr.fit_stack(images, labels, SMALL)
    second = stack.levels[1]
    from_before = (second.channel[:, 0] >= stack.features.n_features) & second.is_split
    assert from_before.any()
    assert (second.offset[from_before] != 0).any()
    assert not (stack.levels[0].channel >= stack.features.n_features).any()


def test_training_pixels_go_where_prediction_sends_them():
    """Codes route in training as thresholds do in prediction: growing on its own training set must not differ."""
    images, labels = blobs(4)
    config = dataclasses.replace(SMALL, n_levels=1, held_out="none", augment=hr.AugmentConfig(copies=0))
    prepared = grouped(images, labels, config)
    features, kept = stack_module.fit_features([p.planes for p in prepared], config)
    samples = stack_module.draw_samples(prepared, config)
    labelled = LabelledSet(prepared, (0, 1, 2))
    planes = stack_module.build_planes(labelled, features, kept.__getitem__, samples, config)
    coded, _ = stack_module._grow_level(planes, samples, 0, 3, config, silent, stack_module.grow_in_turn)
    finished = planes.over_channels(coded)
    for i, image in enumerate(prepared):
        given = whole_input(features.compute(image.planes))
        np.testing.assert_array_equal(run_forest(coded, planes.input(i, given.region)), run_forest(finished, given))


@pytest.mark.parametrize("n_images", [1, 2, 5])
@pytest.mark.parametrize("held_out", ["trees", "folds"])
def test_passed_on_predictions_come_from_trees_that_did_not_see_the_group(monkeypatch, n_images, held_out):
    images, labels = blobs(n_images)
    skipped_by, seen = {}, {}
    true_grow, true_joined = stack_module.grow_tree, stack_module.joined_trees

    def grow(task, *rest):
        tree = true_grow(task, *rest)
        skipped_by[id(tree)] = (task.skipped, tree)
        return tree

    def join(trees, *rest):
        forest = true_joined(trees, *rest)
        seen[id(forest)] = (forest, [skipped_by[id(tree)][0] for tree in trees])
        return forest

    monkeypatch.setattr(stack_module, "grow_tree", grow)
    monkeypatch.setattr(stack_module, "joined_trees", join)
    true_proba = stack_module.held_out_proba

    def check(planes, i, image, predictors, *rest):
        for group, predictor in predictors.items():
            for forest, skipped in seen.values():
                if predictor is forest:
                    assert all(group in groups for groups in skipped)
                    break
            else:  # a selection of one forest's trees: those that skip the group, at least one
                forest, skipped = list(seen.values())[-1]
                trees = [t for t, groups in enumerate(skipped) if group in groups]
                assert trees
                np.testing.assert_array_equal(predictor.threshold, forest.select(np.array(trees)).threshold)
        return true_proba(planes, i, image, predictors, *rest)

    monkeypatch.setattr(stack_module, "held_out_proba", check)
    stack = hr.fit_stack(images, labels, dataclasses.replace(SMALL, held_out=held_out, n_folds=2))
    assert len(stack.settings["held_out"]) == 2
    assert len(seen) == (2 if held_out == "trees" else 6)


def test_groups_are_images_or_blocks_of_few_images():
    images, labels = blobs(5)
    prepared = grouped(images, labels, SMALL)
    assert [len(np.unique(p.group)) for p in prepared[:5]] == [1] * 5
    assert len({int(p.group[0, 0]) for p in prepared[:5]}) == 5
    assert {int(p.group[0, 0]) for p in prepared[5:]} == {int(p.group[0, 0]) for p in prepared[:5]}
    prepared = grouped(images[:1], labels[:1], SMALL)
    assert len(np.unique(prepared[0].group)) == samples_module.BLOCKS_PER_SIDE**2


def test_the_record_of_what_is_held_out_does_not_count_reserved_images():
    stack = hr.fit_stack(*blobs(4), dataclasses.replace(SMALL, reserve=0.25))
    assert len(stack.known.seen) == 3
    assert stack.settings["held"] == "blocks"


def test_strokes_of_each_class_are_dealt_out_to_the_folds():
    image, labels = np.zeros((60, 80), np.uint8), np.full((60, 80), 255)
    labels[5, 5:30], labels[5, 40:60], labels[30, 10:20] = 0, 0, 0
    labels[50, 5:40], labels[50, 50:75] = 1, 1
    config = dataclasses.replace(SMALL, n_folds=2, augment=hr.AugmentConfig())
    group = grouped([image], [labels], config)[0].group
    first = [int(group[place]) for place in ((5, 10), (5, 50), (30, 15))]
    assert first[0] != first[1], "the two longest are apart"
    assert first[2] == first[0]
    assert group[50, 10] != group[50, 60]
    assert (group[50, 5:40] == group[50, 5]).all(), "a stroke is one group"
    assert group[55, 8] == group[50, 8], "what is not painted goes with the nearest stroke"
    stack = hr.fit_stack([image + labels.astype(np.uint8) % 2], [labels], dataclasses.replace(config, n_levels=2))
    assert stack.settings["held"] == "strokes"


@pytest.mark.parametrize(("n_groups", "n_trees", "skip"), [(2, 2, 0.3), (5, 16, 0.34), (30, 4, 0.1), (16, 16, 0.9)])
def test_every_group_is_skipped_by_a_tree_and_no_tree_skips_all(n_groups, n_trees, skip):
    skipped = stack_module._skipped_groups(np.arange(n_groups), n_trees, skip)
    assert len(skipped) == n_trees
    assert all(0 < len(set(groups)) < n_groups for groups in skipped)
    assert set(np.concatenate(skipped)) == set(range(n_groups))


def test_context_helps_where_it_must():
    """Class 2 looks like nothing special by itself; a stack with offsets must beat one that sees a pixel alone."""
    rng = np.random.default_rng(0)
    images, labels = [], []
    for _ in range(6):
        mark = rng.random((50, 50)) > 0.97
        near = np.zeros_like(mark)
        near[:, 9:] = mark[:, :-9]  # right of a mark, by nine columns
        images.append((mark * 200 + rng.integers(0, 20, mark.shape)).astype(np.uint8))
        labels.append(near.astype(np.uint8))
    dice = {}
    for window in (1, 21):
        # Few offsets hit the right place, so try many; a wrong one costs nothing.
        config = dataclasses.replace(
            SMALL,
            sigmas=(0.7,),
            context=hr.ContextConfig(window=window, n_offsets=200, n_channels=4),
            sampling=hr.SamplingConfig(step=1, fraction=1.0),
            augment=hr.AugmentConfig(copies=0),
        )
        stack = hr.fit_stack(images[:5], labels[:5], config)
        dice[window] = hr.evaluate(stack, images[5:], labels[5:]).dice[1]
    assert dice[21] > 0.6
    assert dice[1] < 0.2


@pytest.mark.parametrize("context", [{"radii": (0, 2, 4)}, {"n_probes": 3}])
def test_windows_and_oblique_splits_train_and_predict(context):
    images, labels = blobs(5)
    config = dataclasses.replace(SMALL, context=hr.ContextConfig(window=17, **context))
    stack = hr.fit_stack(images, labels, config)
    assert hr.evaluate(stack, images, labels).mean_dice > 0.8
    splits = stack.levels[0].is_split
    if "radii" in context:
        assert set(np.unique(stack.levels[0].radius[splits])) == {0, 2, 4}
    else:
        assert stack.levels[0].weight.shape[1] == 3
        assert ((stack.levels[0].weight[splits] != 0).sum(axis=1) == 3).any()


def test_depth_features_train_and_predict():
    images, labels = hr.synthetic.bodies(6, size=(60, 80))
    config = dataclasses.replace(
        SMALL,
        features="depth",
        context=hr.ContextConfig(n_channels=2, n_offsets=30),
        augment=hr.AugmentConfig(copies=0),
    )
    stack = hr.fit_stack(images, labels, config)
    assert hr.evaluate(stack, images, labels).balanced_accuracy_without(19) > 0.2  # by chance 0.05
    splits = stack.levels[0].is_split
    on_depth = splits & (stack.levels[0].channel[:, 0] == 0)
    assert (stack.levels[0].weight[on_depth] == [1, -1]).all(), "depth is read as a difference of two places"


def test_scribbles_train_and_unlabelled_pixels_do_not_count():
    images, labels = blobs(4)
    rng = np.random.default_rng(0)
    scribbles = [np.where(rng.random(label.shape) < 0.1, label + 1, 0).astype(np.int32) * 7 for label in labels]
    stack = hr.fit_stack(images, scribbles, SMALL, unlabelled=0)
    assert stack.classes == (7, 14, 21)
    assert set(np.unique(stack.predict(images[0]))) <= {7, 14, 21}
    truth = [(label.astype(np.int32) + 1) * 7 for label in labels]
    assert hr.evaluate(stack, images, truth).mean_dice > 0.7


def test_own_channels_take_the_place_of_the_bank():
    rng = np.random.default_rng(0)
    embeddings = [rng.standard_normal((7, 20, 24)).astype(np.float32) for _ in range(4)]
    labels = [(channels[3] > 0.2).astype(np.uint8) for channels in embeddings]
    config = dataclasses.replace(SMALL, features="channels", sampling=hr.SamplingConfig(step=1, fraction=1.0))
    stack = hr.fit_stack(embeddings, labels, config)
    assert stack.features.names[3] == "channel 3"
    assert hr.evaluate(stack, embeddings, labels).accuracy > 0.9


def test_the_paper_s_plain_way_reports_no_held_out_score():
    images, labels = blobs(4)
    stack = hr.fit_stack(images, labels, dataclasses.replace(SMALL, held_out="none"))
    assert stack.settings["held_out"] == []


def test_a_report_function_hears_of_progress_and_can_stop_the_work():
    images, labels = blobs(4)
    heard = []
    hr.fit_stack(images, labels, SMALL, progress=lambda *event: heard.append(event))
    assert {"forests: features", "forests: level 1 of 2, trees", "forests: level 2 of 2, trees"} <= {
        what for what, _, _ in heard
    }
    assert all(0 <= done <= total for _, done, total in heard)

    class StopError(Exception):
        pass

    def stop(what, done, total):
        if "level 2" in what:
            raise StopError

    with pytest.raises(StopError):
        hr.fit_stack(images, labels, SMALL, progress=stop)


BAD_SETS = {
    "one label map for each": lambda images, labels: (images[:3], labels),
    "there are 0 image": lambda images, labels: ([], []),
    "image 3": lambda images, labels: ([*images[:3], images[3][:-1]], labels),
    "channel": lambda images, labels: ([*images[:3], np.stack([images[3]] * 3, axis=-1)], labels),
    "class": lambda images, labels: (images, [label * 0 for label in labels]),
    "image 3 ": lambda images, labels: (images, [*labels[:3], labels[3] * 0 + 255]),
    "image 3 .*(NaN|nan|finite)": lambda images, labels: (
        [*images[:3], np.where(images[3] > 170, np.nan, images[3])],
        labels,
    ),
}


@pytest.mark.parametrize("complaint", BAD_SETS)
def test_bad_input_is_refused_by_name(complaint):
    images, labels = BAD_SETS[complaint](*blobs(4))
    with pytest.raises(InputError, match=complaint):
        hr.fit_stack(images, labels, SMALL)


def test_a_rare_class_survives_the_limit_on_samples():
    images, labels = blobs(4)
    for label in labels:
        label[label == 2] = 0
    labels[0][3, 3:8] = 2
    config = dataclasses.replace(SMALL, sampling=hr.SamplingConfig(step=1, max_samples=100))
    prepared = grouped(images, labels, config)
    samples = stack_module.draw_samples(prepared, config)
    assert len(samples) <= 100 + 3 * config.sampling.at_least
    assert (samples.target == 2).sum() >= 5


def test_what_is_no_settings_object_and_what_cannot_work_is_refused():
    images, labels = blobs(4)
    with pytest.raises(hr.ConfigError, match="StackConfig"):
        hr.fit_stack(images, labels, {"n_trees": 3})
    with pytest.raises(hr.ConfigError, match="at least 2"):
        hr.StackConfig(held_out="trees", n_trees=1)
    with pytest.raises(InputError, match="name"):
        hr.fit_stack(images, labels, SMALL, names=["only one"])
