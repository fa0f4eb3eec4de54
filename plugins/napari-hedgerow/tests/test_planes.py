"""The image of a layer that a model is trained on."""

import numpy as np
import pytest

import hedgerow as hr
from napari_hedgerow.planes import ImageData, painted_plane


def data(*shape: int, rgb: bool = False, channels: bool = False) -> ImageData:
    return ImageData(np.arange(np.prod(shape)).reshape(shape), rgb, channels, "cells")


def test_a_grey_image_is_itself() -> None:
    image = data(4, 5)
    assert image.plane(7) is image.array
    assert (image.size, image.n_planes, image.label_shape) == ((4, 5), None, (4, 5))


def test_colours_lose_their_transparency() -> None:
    image = data(4, 5, 4, rgb=True)
    assert np.array_equal(image.plane(0), image.array[..., :3])
    assert (image.size, image.n_planes) == ((4, 5), None)


@pytest.mark.parametrize(("position", "meant"), [(-3, 0), (1, 1), (9, 2)])
def test_of_a_stack_the_current_plane(position: int, meant: int) -> None:
    grey, colours = data(3, 4, 5), data(3, 4, 5, 3, rgb=True)
    assert np.array_equal(grey.plane(position), grey.array[meant])
    assert np.array_equal(colours.plane(position), colours.array[meant])
    assert grey.label_shape == colours.label_shape == (3, 4, 5)


def test_channels_go_last() -> None:
    image = data(2, 4, 5, channels=True)
    assert np.array_equal(np.asarray(image.plane(1)), image.array.transpose(1, 2, 0))
    assert image.label_shape == (4, 5)


def test_more_axes_are_refused_in_one_sentence() -> None:
    with pytest.raises(hr.InputError, match=r"^cells has shape \(2, 3, 4, 5\).*fewer axes\.$"):
        data(2, 3, 4, 5)
    with pytest.raises(
        hr.InputError, match=r"^cells has shape \(4, 5\), expected channels.*First axis is channels'\.$"
    ):
        data(4, 5, channels=True)


def test_paint_is_copied_so_that_a_later_stroke_does_not_change_a_running_job() -> None:
    labels = np.zeros((3, 4, 5), np.uint8)
    labels[1] = 7
    taken = painted_plane(labels, 1, (4, 5), "paint")
    labels[1] = 8
    assert (taken == 7).all()
    assert painted_plane(labels[0], 2, (4, 5), "paint").shape == (4, 5)


def test_paint_of_another_size_is_refused() -> None:
    with pytest.raises(hr.InputError, match="expected 4 rows x 6 columns"):
        painted_plane(np.zeros((4, 5), int), 0, (4, 6), "paint")
