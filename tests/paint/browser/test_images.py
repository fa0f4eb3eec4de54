"""The list of images with their state, and what cannot be read or is gone."""

import pytest

from browsing import Paint
from helpers.browsing import PLAIN, write_images
from helpers.files import write

SHOWN = "document.querySelector('#overlay-model').textContent"


def damage(path):
    """Damage the pixels of a file, and leave its header."""
    content = path.read_bytes()
    path.write_bytes(content[:4000] + bytes(9000) + content[13000:])


def paint_two_classes(hand):
    for place, *places in ((1, (20, 10), (50, 40)), (2, (20, 160), (50, 190))):
        hand.choose(place)
        hand.stroke(*places)
    hand.saved()


def images_listed(hand):
    hand.page.click("#images")
    text = hand.page.locator("#images-dialog").inner_text()
    hand.press("Escape")
    return text


@pytest.fixture
def folder(tmp_path):
    write_images(tmp_path / "images")
    return tmp_path


def test_a_corrupt_image_is_listed_and_not_painted_and_training_goes_on_without_it(open_page, folder):
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        paint_two_classes(hand)
        hand.run("hedgerow.app.show(1)")
        paint_two_classes(hand)
        server.kill()
        damage(folder / "images" / "b.png")
        damage(folder / "images" / "c.png")
        (folder / "images" / "notes.txt").write_text("no image")
        server.start()
        hand = open_page(server)
        hand.run("hedgerow.app.show(2)")
        hand.page.locator("#image-problem").get_by_text("c.png").wait_for()
        hand.stroke((20, 10), (50, 40))
        hand.page.locator(".notice").get_by_text("so it cannot be painted").wait_for()
        assert hand.run("hedgerow.session.outbox.waiting.length") == 0
        listed = images_listed(hand)
        assert all(f"{name}\ncannot be read" in listed for name in ("b.png", "c.png"))
        assert "a.png\n1,2" in listed
        hand.run("hedgerow.app.show(0)")
        assert hand.page.locator("#image-problem").is_hidden()
        hand.page.click("#train")
        hand.until(f"{SHOWN}.startsWith('Model: 1')", patience=60)
        assert "b.png" in hand.page.locator(".notice.good").last.inner_text()


def test_an_image_that_is_deleted_meanwhile_does_not_block_training(open_page, folder):
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        paint_two_classes(hand)
        hand.run("hedgerow.app.show(1)")
        paint_two_classes(hand)
        (folder / "images" / "b.png").unlink()
        hand.page.click("#train")
        hand.until(f"{SHOWN}.startsWith('Model: 1') || hedgerow.app.image.problem", patience=60)
        hand.until("hedgerow.app.models.length === 1", patience=60)
        assert "b.png" in images_listed(hand)
        server.kill()
        server.start()
        hand = open_page(server)
        hand.page.locator(".notice.warning").get_by_text("left out").wait_for()
        listed = images_listed(hand)
        assert "b.png is not among the images; its paint (2 strokes) is kept" in listed
        server.kill()
        write_images(folder / "images")
        server.start()
        hand = open_page(server)
        assert (hand.labels(1) != 255).any()


def test_files_that_are_left_out_are_named_on_the_page(open_page, folder):
    import numpy as np

    write(folder / "images" / "colour.png", np.zeros((20, 30, 3), np.uint8))
    with Paint(folder / "images", folder / "project", before=PLAIN) as server:
        hand = open_page(server)
        assert hand.page.locator("#images[data-problems]").count() == 1
        assert "colour.png has 3 channel(s)" in images_listed(hand)
