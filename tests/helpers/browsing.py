"""Small images to paint on in a browser; who drives it is in benchmarks/browsing.py."""

import numpy as np

from helpers.files import write

SIZE = (150, 200)
SMALL = (70, 90)  # of a fourth image, d.png
NAMES = ("a.png", "b.png", "c.png")
# Run in a server's process: no pretrained network by default, as in all other tests. With it training takes a minute.
PLAIN = "from hedgerow.forest import default_settings; default_settings.default_encoder_is_installed = lambda: False"


def write_images(folder, size=SIZE, names=NAMES):
    """Grey images of a dark left, a bright right and a middle in between."""
    for seed, name in enumerate(names):
        noise = np.random.default_rng(seed).normal(0, 9, size)
        shade = np.select([np.arange(size[1]) < size[1] // 3, np.arange(size[1]) < 2 * size[1] // 3], [50, 125], 205)
        write(folder / name, (shade + noise).clip(0, 255).astype(np.uint8))
    return folder
