"""Makes the pictures of the page for the documentation: docs/paint.png, docs/paint-light.png and docs/paint.webp.

Somebody paints house fronts (`hedgerow sample facades`) with the real mouse, in Chromium, and every picture is a
screenshot: `python benchmarks/paint_pictures.py`.
"""

import io
import tempfile
from itertools import pairwise
from pathlib import Path

from PIL import Image

from browsing import FLAGS, Hand, Paint, browser_path
from hedgerow import synthetic

DOCS = Path(__file__).parents[1] / "docs"
VIEW = {"width": 1280, "height": 800}
SHRUNK = (960, 600)
MOST_BYTES = 3_000_000
LASTS = 30  # seconds
# Name, colour and strokes on the first image of each class, in the order in which they are painted.
CLASSES = {
    "sky": ("#66ccee", [[(45, 90), (60, 200), (40, 380)]]),
    "wall": ("#ccbb44", [[(306, 110), (310, 300), (306, 500)]]),
    "vegetation": ("#228833", [[(440, 790), (500, 830), (540, 800)]]),
    "roof": ("#ee6677", [[(120, 330), (130, 460), (122, 620)]]),
    "window": ("#4477aa", [[(208, 122), (268, 172)], [(208, 660), (262, 640)]]),
    "street": ("#bbbbbb", [[(660, 150), (690, 400), (670, 620)]]),
}

CORRECTIONS = (
    ("wall", [(440, 500), (330, 600), (330, 800)]),
    ("street", [(622, 600), (625, 200)]),
    ("sky", [(330, 940), (200, 930)]),
)


class Film:
    """Screenshots, and the duration of each."""

    def __init__(self, hand):
        self.hand = hand
        self.frames, self.durations = [], []

    def shoot(self, seconds=0.1):
        shot = Image.open(io.BytesIO(self.hand.page.screenshot(type="png"))).convert("RGB")
        small = shot.resize(SHRUNK, Image.Resampling.LANCZOS)
        if self.frames and self.frames[-1] == small:
            self.durations[-1] += int(1000 * seconds)
            return
        self.frames.append(small)
        self.durations.append(int(1000 * seconds))

    def wait(self, seconds, rate=5):
        """What the page does by itself, some pictures a second."""
        for _ in range(int(seconds * rate)):
            self.hand.page.wait_for_timeout(int(1000 / rate))
            self.shoot(1 / rate)

    def stroke(self, places, steps=5):
        """Draw through places, with a picture of every move."""
        mouse = self.hand.page.mouse
        mouse.move(*self.hand.place(*places[0]))
        self.shoot(0.25)
        mouse.down()
        for (row, col), (last_row, last_col) in pairwise(places):
            for step in range(1, steps + 1):
                part = step / steps
                mouse.move(*self.hand.place(row + part * (last_row - row), col + part * (last_col - col)))
                self.shoot(0.09)
        mouse.up()

    def last(self, seconds):
        """Show the last picture until the film has this length."""
        self.durations[-1] += max(int(1000 * seconds) - sum(self.durations), 0)

    def write(self, path):
        """Write an animation of limited size; quality is reduced until it fits."""
        for quality in (70, 55, 40, 30, 20):
            self.frames[0].save(
                path, save_all=True, append_images=self.frames[1:], duration=self.durations, loop=0,
                quality=quality, method=4,
            )  # fmt: skip
            if path.stat().st_size <= MOST_BYTES:
                return
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are wanted.")


def prepare(hand):
    """Name the classes before the first picture."""
    for place, (name, (colour, _)) in enumerate(CLASSES.items()):
        known = hand.run("place => hedgerow.app.classes[place]?.id ?? null", place)
        change = {"name": name, "colour": colour}
        hand.run("([id, change]) => { hedgerow.actions.changeClass(id, change); }", [known, change])
        hand.until("name => hedgerow.app.classes.some(each => each.name === name)", name)
    hand.run("hedgerow.app.setRadius(7)")
    hand.page.wait_for_timeout(2500)


def paint(film, name, places):
    film.hand.choose(list(CLASSES).index(name) + 1)
    film.stroke(places)
    film.hand.saved()


def show(film, mode, seconds=1.6):
    """Show the segmentation in another style."""
    film.hand.page.get_by_role("radio", name=mode).click()
    film.hand.segmented()
    film.wait(seconds)


def act(film, labels):
    """The thirty seconds. labels: (H,W) of each image, which tell what there is at the place that is suggested"""
    hand = film.hand
    film.shoot(1.6)
    for name, (_, strokes) in CLASSES.items():
        for places in strokes:
            paint(film, name, places)
        if name != "sky":
            hand.segmented()
            film.wait(0.6)
    for name, places in CORRECTIONS:
        paint(film, name, places)
    hand.segmented()
    film.wait(1.6)
    show(film, "Uncertainty")
    hand.run("hedgerow.stage.root.focus()")
    hand.press("n")
    hand.until("!document.querySelector('#callout').hidden")
    film.wait(2.0, rate=8)
    show(film, "Colours", 0.6)
    image, row, col = hand.run("[hedgerow.app.image.id, hedgerow.stage.view.row, hedgerow.stage.view.col]")
    there = synthetic.FACADE_NAMES[labels[image][int(row), int(col)]]
    if there in CLASSES:
        paint(film, there, [(row, col - 6), (row, col + 6)])
        hand.segmented()
    film.wait(1.2)
    hand.run("() => { hedgerow.app.show(0); hedgerow.stage.view.fit(); }")
    hand.segmented()
    film.wait(0.6)
    show(film, "Outlines")
    show(film, "Colours", 0.4)
    hand.run("hedgerow.app.show(2)")
    hand.segmented()
    film.wait(2.0)
    hand.page.click("#export")
    film.wait(1.4)
    hand.page.keyboard.press("Escape")
    hand.run("hedgerow.app.show(0)")
    hand.segmented()


def main():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name) / "facades"
        folder.mkdir()
        images, labels = synthetic.facades(5, (720, 960), seed=3)
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / f"front-{number + 1}.png")
        browser = driver.chromium.launch(executable_path=browser_path(), args=list(FLAGS))
        with Paint(folder, Path(folder_name) / "house fronts", threads=2) as server:
            page = browser.new_context(viewport=VIEW, color_scheme="dark").new_page()
            page.goto(server.address)
            hand = Hand(page)
            hand.ready()
            prepare(hand)
            film = Film(hand)
            act(film, labels)
            hand.page.wait_for_timeout(6000)
            hand.run("document.activeElement.blur()")
            page.screenshot(path=DOCS / "paint.png")
            hand.run("hedgerow.actions.theme()")
            hand.page.get_by_role("radio", name="Outlines").click()
            hand.segmented()
            hand.page.wait_for_timeout(600)
            page.screenshot(path=DOCS / "paint-light.png")
        browser.close()
    film.last(LASTS)
    film.write(DOCS / "paint.webp")
    seconds = sum(film.durations) / 1000
    print(f"{len(film.frames)} pictures, {seconds:.1f} seconds, {(DOCS / 'paint.webp').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
