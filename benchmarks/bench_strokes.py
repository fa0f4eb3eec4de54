"""One picture, 1 % of it painted with strokes: how well the rest is segmented, beside scikit-image's features with
scikit-learn's random forest.

The pictures are drawn house fronts (`hedgerow sample facades`) and photographs, 4 of each, painted with 3 sets of
strokes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from hedgerow import synthetic
from hedgerow.config import StackConfig
from hedgerow.forest.default_settings import default_encoder_is_installed, labelled_fraction, settings_for
from hedgerow.forest.settings_choice import fit_stack
from hedgerow.images.given import labelled_set
from hedgerow.images.metrics import scores
from hedgerow.progress import silent
from hedgerow.threads import set_threads
from measure import THREADS, in_fresh_process, installed, require, seconds, table
from photographs import photographs

TITLE = "Strokes on one photograph"
PART, N_PHOTOGRAPHS, N_PAINTERS = 0.01, 4, 3
OURS, BANK, DENSE = (
    "hedgerow, filter bank and pretrained network",
    "hedgerow, filter bank",
    "hedgerow, filter bank, settings for full labels",
)
PEER = "scikit-image + scikit-learn"
KINDS = FRONTS, PHOTOGRAPHS = "house fronts", "photographs"
UNLABELLED = 255
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]


def ours(image: np.ndarray, strokes: np.ndarray, config: StackConfig | None = None) -> np.ndarray:
    """(H,W) classes; config: None: chosen by the amount of paint"""
    return fit_stack([image], [strokes], config, progress=silent).predict(image)


def with_bank(image: np.ndarray, strokes: np.ndarray) -> np.ndarray:
    """`ours` as if the extra `pretrained` were not installed."""
    return ours(image, strokes, settings_for(labelled_fraction(labelled_set([image], [strokes])), keep_features=True))


def peer(image: np.ndarray, strokes: np.ndarray) -> np.ndarray:
    """As in scikit-image's gallery, with its multiscale features of each colour, and a forest of 100 full trees, which
    is better than the shallow one shown there."""
    from skimage.feature import multiscale_basic_features
    from sklearn.ensemble import RandomForestClassifier

    features = multiscale_basic_features(image, channel_axis=-1, sigma_min=1, sigma_max=16)
    painted = strokes != UNLABELLED
    forest = RandomForestClassifier(n_estimators=100, n_jobs=THREADS, random_state=0)
    forest.fit(features[painted], strokes[painted])
    return forest.predict(features.reshape(-1, features.shape[-1])).reshape(strokes.shape)


CONTENDERS: dict[str, Predict] = {OURS: ours, BANK: with_bank, DENSE: partial(ours, config=StackConfig()), PEER: peer}


def pictures(kind: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images and their labels, 255 where the class is uncertain."""
    if kind == PHOTOGRAPHS:
        return [(image, labels) for _, image, labels in photographs()]
    return list(zip(*synthetic.facades(n_images=N_PHOTOGRAPHS, seed=5), strict=True))


def compare(name: str, kind: str, n_pictures: int, n_painters: int) -> tuple[list[float], float]:
    """Mean Dice on the unpainted pixels of each picture, and CPU seconds of training and prediction."""
    set_threads(THREADS)
    chosen = pictures(kind)[:n_pictures]
    predict = CONTENDERS[name]
    predict(chosen[0][0], synthetic.paint(chosen[0][1], PART))  # kernels compile at their first use
    dice, start = [], time.process_time()
    for image, whole in chosen:
        classes = [value for value in np.unique(whole).tolist() if value != UNLABELLED]
        for painter in range(n_painters):
            strokes = synthetic.paint(whole, PART, seed=painter)
            rest = np.where(strokes == UNLABELLED, whole, UNLABELLED)
            dice.append(scores([rest], [predict(image, strokes)], classes).mean_dice)
    return dice, (time.process_time() - start) / len(dice)


def run(small: bool = False) -> str:
    n_pictures, n_painters = (1, 1) if small else (N_PHOTOGRAPHS, N_PAINTERS)
    missing = {OURS: not default_encoder_is_installed(), PEER: not installed("skimage", "sklearn")}
    names = [name for name in CONTENDERS if not missing.get(name)]
    kinds = [kind for kind in KINDS if kind != PHOTOGRAPHS or installed("skimage")]
    measured = {
        (name, kind): in_fresh_process(compare, name, kind, n_pictures, n_painters) for name in names for kind in kinds
    }
    require(min(measured[BANK, FRONTS][0]) > 0.2, "a segmentation by strokes is no better than guessing.")
    rows = []
    for name in names:
        dice = [f"{of(measured[name, kind][0]):.3f}" for kind in kinds for of in (np.mean, np.min)]
        rows.append([name, *dice, seconds(float(np.mean([measured[name, kind][1] for kind in kinds])))])
    headers = ["", *(f"{kind}: {what}" for kind in kinds for what in ("mean Dice", "worst")), "CPU s"]
    about = (
        f"How well does a model trained on strokes segment the rest of the same image? {n_pictures} drawn house "
        f"fronts, and {n_pictures} photographs of scikit-image with regions labelled by script "
        f"(`benchmarks/photographs.py`), with strokes on {PART:.0%} of the labelled pixels, "
        f"{n_painters} sets of strokes each:"
    )
    return f"{about}\n\n{table(headers, rows)}"
