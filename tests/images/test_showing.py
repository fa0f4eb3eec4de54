"""Pictures that show themselves: what is tinted, which colours, the key, and what is refused."""

import io

import numpy as np
import pytest
from PIL import Image

import hedgerow as hr
from conftest import CLASSES, draw
from hedgerow.errors import InputError
from hedgerow.images import picture_key
from hedgerow.images.pictures import class_palette, grey_picture
from hedgerow.images.showing import Picture, show
from helpers.forests import grown_stack
from helpers.refusals import assert_one_sentence


def displayed(picture):
    """What Jupyter gets, as an array."""
    with Image.open(io.BytesIO(picture._repr_png_())) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def test_an_image_alone_is_shown_as_it_is():
    image, _ = draw(0, size=(200, 330))
    picture = show(image)
    np.testing.assert_array_equal(picture.pixels, grey_picture(image[None]))
    np.testing.assert_array_equal(displayed(picture), picture.pixels)
    assert repr(picture) == "Picture(200 rows x 330 columns)"


def test_small_images_are_enlarged_and_large_ones_shrunk_for_display_only(tmp_path):
    image, labels = draw(0)
    small = show(image, labels)
    assert small.pixels.shape == (240, 320, 3)
    large = show(*draw(0, size=(40, 3000)))
    assert large.pixels.shape == (40, 3000, 3)
    assert displayed(large).shape[1] == 1000
    large.save(tmp_path / "large.png")
    assert hr.read_image(tmp_path / "large.png").shape[1] == 3000


def test_classes_are_tinted_outlined_and_named():
    image, labels = np.full((200, 400), 7, np.uint8), np.full((200, 400), 3, np.uint8)
    labels[:, 200:] = 5
    legend = hr.Legend({5: "cell"}, {3: (200, 0, 0), 5: (0, 0, 200)})
    picture = show(image, labels, legend=legend)
    assert picture.pixels[100, 50].tolist() == [70, 0, 0]
    assert picture.pixels[100, 200].tolist() == [0, 0, 200]
    assert picture.pixels[100, 300].tolist() == [0, 0, 70]
    assert picture.key == (("3", (200, 0, 0)), ("cell", (0, 0, 200)))
    below = displayed(picture)[200:]
    for colour in ((200, 0, 0), (0, 0, 200)):
        assert (below == colour).all(axis=2).sum() == (picture_key.SQUARE_PIXELS - 1) ** 2  # within its edge
    assert (below.sum(axis=2) < 300).any()  # letters


def test_the_background_and_what_is_no_class_are_left_as_they_are():
    image, labels = draw(0, size=(320, 320))
    plain = show(image).pixels
    picture = show(image, labels, classes=CLASSES[:2], background=CLASSES[0])
    np.testing.assert_array_equal(picture.pixels[labels == CLASSES[0]], plain[labels == CLASSES[0]])
    np.testing.assert_array_equal(picture.pixels[labels == CLASSES[2]], plain[labels == CLASSES[2]])
    assert (picture.pixels != plain)[labels == CLASSES[1]].any(axis=1).mean() > 0.9
    assert [name for name, _ in picture.key] == [str(CLASSES[1])]


def test_a_colour_does_not_depend_on_which_classes_an_image_has():
    image = np.zeros((4, 4), np.uint8)
    picture = show(image, np.full((4, 4), 77), classes=CLASSES)
    assert picture.key == (("77", tuple(class_palette(CLASSES)[77].tolist())),)


def test_a_model_gives_labels_names_and_the_layout(stack, example):
    said = show(example.images[0], model=stack)
    same = show(example.images[0], stack.predict(example.images[0]), classes=stack.classes)
    np.testing.assert_array_equal(said.pixels, same.pixels)
    for kind in ("channels", "depth"):
        grown, image = grown_stack(kind)
        assert show(image, model=grown).pixels.shape[2] == 3
    planes = np.zeros((5, 20, 30))
    assert show(planes, layout="planes").pixels.shape == (220, 330, 3)


def test_a_key_of_many_long_names_stays_inside_the_picture():
    names = {value: f"{value} of a very long name of a class" for value in range(60)}
    labels = np.arange(60, dtype=np.uint8).repeat(40).reshape(60, 40)
    shown = displayed(show(np.zeros((60, 40)), labels, legend=hr.Legend(names)))
    assert shown.shape[1] == 240
    assert (shown[360:, -1] == 255).all()
    assert shown.shape[0] < 360 + 45 * picture_key.LINE_PIXELS


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("JPG", b"\xff\xd8"), ("tif", b"II")])
def test_the_ending_decides_the_format(tmp_path, ending, start):
    path = tmp_path / f"a.{ending}"
    Picture(np.zeros((10, 10, 3), np.uint8)).save(path)
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("labels", "path", "words"),
    [
        (np.zeros((3, 4), int), "a.png", ["24 rows x 32 columns", "3 rows x 4 columns"]),
        (np.full((24, 32), 0.5), "a.png", ["whole numbers"]),
        (np.zeros((24, 32), int), "a.doc", [".png"]),
    ],
)
def test_refusals_are_one_sentence(tmp_path, labels, path, words):
    with pytest.raises(InputError) as problem:
        show(draw(0)[0], labels).save(tmp_path / path)
    assert_one_sentence(problem, *words)
    assert not list(tmp_path.iterdir())
