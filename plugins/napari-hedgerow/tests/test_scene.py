"""The layers of a viewer model: this needs napari, but no screen."""

import pytest

pytest.importorskip("napari", reason="napari is not installed")

import numpy as np
from napari.components import ViewerModel

import hedgerow as hr
from napari_hedgerow.engine import Predicted
from napari_hedgerow.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene(ViewerModel())


def predicted(
    scene: Scene, image: object, value: int, *, with_proba: bool = False, channels: bool = False
) -> Predicted:
    picture = scene.picture(image, channels)
    size = picture.key.data.size
    proba = np.full((2, *size), 0.5, np.float32) if with_proba else None
    return Predicted(picture, np.full(size, value, np.uint8), proba, (1, 2))


def test_a_prediction_gets_its_layer_under_the_paint_and_the_hand_stays(scene: Scene) -> None:
    image = scene.viewer.add_image(np.zeros((6, 8)), name="cells", scale=(2, 3), translate=(5, 7))
    paint = scene.add_paint(image, False)
    scene.show(predicted(scene, image, 2))
    assert [layer.name for layer in scene.viewer.layers] == ["cells", "cells segmentation", "cells paint"]
    assert scene.viewer.layers.selection.active is paint
    assert paint.mode == "paint"
    prediction = scene.viewer.layers["cells segmentation"]
    assert (prediction.data == 2).all()
    assert np.allclose(prediction.data_to_world((1, 1)), image.data_to_world((1, 1)))
    scene.show(predicted(scene, image, 1))
    assert (prediction.data == 1).all()
    assert len(scene.viewer.layers) == 3


def test_predictions_are_not_offered_as_images_or_paint(scene: Scene) -> None:
    image = scene.viewer.add_image(np.zeros((6, 8)))
    paint = scene.add_paint(image, False)
    scene.show(predicted(scene, image, 2, with_proba=True))
    assert scene.images() == [image]
    assert scene.paints() == [paint]


def test_of_a_stack_only_the_current_plane_is_written(scene: Scene) -> None:
    image = scene.viewer.add_image(np.arange(5)[:, None, None] * np.ones((5, 6, 8)), name="stack", scale=(4, 1, 1))
    paint = scene.add_paint(image, False)
    assert paint.data.shape == (5, 6, 8)
    for plane in (3, 1):
        scene.viewer.dims.set_current_step(0, plane)
        picture = scene.picture(image, False)
        assert (np.asarray(picture.pixels) == plane).all()
        paint.data[plane] = plane
        assert (scene.painted(paint, picture) == plane).all()
        scene.show(predicted(scene, image, plane))
    found = scene.viewer.layers["stack segmentation"].data
    assert found[:, 0, 0].tolist() == [0, 1, 0, 3, 0]


def test_probabilities_have_a_slider_of_their_own(scene: Scene) -> None:
    image = scene.viewer.add_image(np.zeros((5, 6, 8)), name="stack", scale=(4, 1, 1), translate=(8, 0, 0))
    scene.viewer.dims.set_current_step(0, 3)
    scene.show(predicted(scene, image, 1, with_proba=True))
    proba = scene.viewer.layers["stack probabilities"]
    assert proba.data.shape == (2, 1, 6, 8)
    assert np.allclose(proba.data_to_world((1, 0, 2, 3)), (1, 20, 2, 3))
    assert scene.position(image) == 3
    scene.viewer.dims.set_current_step(1, 1)
    scene.show(predicted(scene, image, 2, with_proba=True))
    assert np.allclose(proba.data_to_world((0, 0, 0, 0)), (0, 12, 0, 0))


def test_channels_have_one_label_map(scene: Scene) -> None:
    image = scene.viewer.add_image(np.zeros((3, 6, 8)), name="three")
    picture = scene.picture(image, True)
    assert np.asarray(picture.pixels).shape == (6, 8, 3)
    assert scene.add_paint(image, True).data.shape == (6, 8)
    scene.show(predicted(scene, image, 1, with_proba=True, channels=True))
    assert scene.viewer.layers["three segmentation"].data.shape == (6, 8)
    assert scene.viewer.layers["three probabilities"].data.shape == (2, 6, 8)


def test_colours_and_pyramids(scene: Scene) -> None:
    colours = scene.viewer.add_image(np.zeros((6, 8, 4), np.uint8), rgb=True)
    assert np.asarray(scene.picture(colours, True).pixels).shape == (6, 8, 3)
    pyramid = scene.viewer.add_image([np.zeros((8, 8)), np.zeros((4, 4))], multiscale=True)
    assert np.asarray(scene.picture(pyramid, False).pixels).shape == (8, 8)


def test_volumes_are_refused_in_one_sentence(scene: Scene) -> None:
    image = scene.viewer.add_image(np.zeros((5, 6, 8)))
    scene.viewer.dims.ndisplay = 3
    with pytest.raises(hr.InputError, match=r"^the view shows a volume.*2-D\.$"):
        scene.picture(image, False)
    scene.viewer.dims.ndisplay = 2
    scene.viewer.dims.order = (1, 0, 2)
    with pytest.raises(hr.InputError, match=r"^the view shows a stack from its side"):
        scene.picture(image, False)
    scene.viewer.dims.order = (0, 1, 2)
    series = scene.viewer.add_image(np.zeros((2, 5, 6, 8)), name="series")
    with pytest.raises(hr.InputError, match=r"^series has shape \(2, 5, 6, 8\)"):
        scene.picture(series, False)


def test_a_prediction_for_a_layer_that_is_gone_is_dropped(scene: Scene) -> None:
    image = scene.viewer.add_image(np.zeros((6, 8)))
    late = predicted(scene, image, 1)
    scene.viewer.layers.remove(image)
    scene.show(late)
    assert len(scene.viewer.layers) == 0
