"""Pictures of images and labels: colours, ranges and sheets."""

import os

import numpy as np
import pytest

from conftest import CLASSES, draw
from hedgerow.images import pictures
from hedgerow.images.reading import read_image


@pytest.mark.parametrize("n", [1, 2, 22, 255])
def test_every_class_has_its_own_colour(n):
    colours = pictures.class_colours(n)
    assert colours.shape == (n, 3)
    assert colours.dtype == np.uint8
    assert len(np.unique(colours, axis=0)) == n
    assert (colours.max(axis=1) > 60).all()  # none is as dark as the background


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 5, 7), (4, 5, 7)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float64])
def test_pictures_of_images_use_the_whole_range(shape, dtype):
    image = (np.random.default_rng(0).random(shape) * 50 + 100).astype(dtype)
    picture = pictures.grey_picture(image)
    assert picture.shape == (5, 7, 3)
    assert picture.dtype == np.uint8
    assert picture.min() == 0
    assert picture.max() == 255


def test_a_flat_image_has_a_picture():
    np.testing.assert_array_equal(pictures.grey_picture(np.full((1, 3, 4), 7)), np.zeros((3, 4, 3)))


def test_label_pictures_have_one_colour_a_class_and_a_dark_background():
    _, labels = draw(0)
    plain = pictures.label_picture(labels, CLASSES)
    assert len(np.unique(plain.reshape(-1, 3), axis=0)) == 3
    picture = pictures.label_picture(labels, CLASSES, background=77)
    assert (picture[labels == 77] == 24).all()
    assert (picture[labels != 77].max(axis=1) > 60).all()
    assert (pictures.label_picture(np.full((2, 2), 9), CLASSES) == 24).all()  # unknown


def test_a_sheet_holds_every_panel(tmp_path):
    red, blue = np.zeros((10, 10, 3), np.uint8), np.zeros((14, 14, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    pictures.save_sheet(tmp_path / "sheet.png", ["red", "blue"], [[red, blue], [blue, red]])
    sheet = read_image(tmp_path / "sheet.png")
    assert (sheet == (255, 0, 0)).all(axis=2).sum() == 2 * 10 * 10
    assert (sheet == (0, 0, 255)).all(axis=2).sum() == 2 * 14 * 14
    assert os.listdir(tmp_path) == ["sheet.png"]


def test_large_panels_of_a_sheet_are_shrunk_alike(tmp_path):
    """So that the titles can be read beside them."""
    large, small = np.full((800, 950, 3), (255, 0, 0), np.uint8), np.full((90, 60, 3), (0, 0, 255), np.uint8)
    pictures.save_sheet(tmp_path / "sheet.png", ["large", "small"], [[large, small]])
    sheet = read_image(tmp_path / "sheet.png")
    assert (sheet == (255, 0, 0)).all(axis=2).sum() == 267 * 317
    assert (sheet == (0, 0, 255)).all(axis=2).sum() == 30 * 20
