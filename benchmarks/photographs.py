"""Four photographs of scikit-image, with regions painted by script where the class is certain."""

from __future__ import annotations

import numpy as np

Shape = tuple[str, list[tuple[int, int]]]
"""("polygon", its corners) or ("ellipse", [centre, radii]); columns and rows of a picture of 480 x 360."""
FRAME = (480, 360)

# Name -> class -> its shapes; later classes lie on top.
REGIONS: dict[str, dict[str, list[Shape]]] = {
    "chelsea": {
        "cat": [("polygon", [(40, 60), (60, 20), (130, 5), (230, 5), (330, 20), (370, 60), (385, 120), (380, 190),
                             (350, 260), (330, 320), (300, 350), (60, 350), (45, 250), (40, 150)])],
        "background": [("polygon", [(440, 5), (478, 5), (478, 355), (390, 355), (400, 260), (400, 150), (420, 80)])],
        "eye": [("ellipse", [(182, 138), (31, 31)]), ("ellipse", [(340, 163), (20, 28)])],
        "nose": [("polygon", [(252, 277), (306, 280), (275, 314)])],
    },
    "astronaut": {
        "suit": [("polygon", [(60, 200), (105, 185), (150, 205), (215, 215), (290, 190), (325, 225), (280, 255),
                              (255, 300), (240, 320), (150, 320), (30, 325), (30, 255)])],
        "background": [("polygon", [(70, 10), (135, 10), (140, 95), (105, 125), (85, 80)]),
                       ("polygon", [(285, 20), (340, 20), (335, 140), (300, 150)])],
        "hair": [("polygon", [(150, 40), (190, 15), (250, 20), (275, 50), (262, 82), (247, 78), (235, 55), (190, 52),
                              (172, 72), (152, 62)])],
        "face": [("polygon", [(182, 70), (233, 66), (238, 95), (222, 122), (192, 120), (177, 95)])],
        "flag": [("polygon", [(4, 50), (28, 20), (78, 140), (58, 175), (4, 165)])],
        "visor": [("polygon", [(292, 268), (350, 258), (415, 272), (435, 318), (415, 350), (285, 350)])],
    },
    "coffee": {
        "table": [("polygon", [(10, 200), (60, 120), (110, 62), (130, 75), (62, 170), (60, 230), (95, 320), (30, 340)]),
                  ("polygon", [(400, 60), (470, 60), (470, 330), (385, 330), (398, 230), (385, 150)])],
        "saucer": [("polygon", [(75, 190), (100, 130), (125, 105), (135, 150), (150, 200), (140, 245), (150, 285),
                                (230, 300), (262, 300), (318, 300), (355, 240), (365, 180), (352, 145), (335, 190),
                                (332, 240), (310, 305), (220, 330), (130, 290)])],
        "cup": [("polygon", [(145, 72), (180, 32), (250, 20), (308, 42), (330, 80), (298, 72), (250, 46), (190, 52),
                             (162, 90)])],
        "coffee": [("polygon", [(178, 125), (202, 112), (250, 110), (280, 130), (268, 152), (220, 162), (188, 148)])],
        "spoon": [("ellipse", [(292, 257), (26, 30)])],
    },
    "rocket": {
        "sky": [("polygon", [(70, 10), (415, 10), (415, 100), (355, 150), (345, 100), (325, 100), (315, 200),
                             (265, 220), (262, 120), (218, 120), (212, 220), (162, 250), (158, 100), (140, 100),
                             (128, 200), (70, 250)])],
        "tower": [("polygon", [(38, 5), (60, 5), (54, 150), (35, 290), (10, 290), (26, 150)]),
                  ("polygon", [(426, 5), (466, 5), (476, 290), (444, 290)])],
        "ground": [("polygon", [(5, 328), (195, 328), (195, 355), (5, 355)]),
                   ("polygon", [(262, 328), (475, 328), (475, 355), (262, 355)])],
        "rocket": [("polygon", [(233, 140), (241, 114), (249, 140), (253, 300), (229, 300)])],
    },
}  # fmt: skip


def photographs() -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For each photograph its name, image (H,W,3) uint8, and labels (H,W) uint8, 255 where the class is uncertain."""
    from skimage import data

    return [(name, getattr(data, name)(), painted(name, getattr(data, name)().shape[:2])) for name in REGIONS]


def painted(name: str, size: tuple[int, int]) -> np.ndarray:
    """(H,W) uint8 classes of a photograph, 255 where the class is uncertain."""
    from skimage.draw import ellipse, polygon

    labels = np.full(size, 255, np.uint8)
    scale = np.array([size[1] / FRAME[0], size[0] / FRAME[1]])
    for value, shapes in enumerate(REGIONS[name].values()):
        for kind, points in shapes:
            columns, rows = (np.array(points, float) * scale).T
            if kind == "polygon":
                labels[polygon(rows, columns, size)] = value
            else:
                labels[ellipse(rows[0], columns[0], rows[1], columns[1], size)] = value
    return labels
