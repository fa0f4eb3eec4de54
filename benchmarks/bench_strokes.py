"""One photograph, 1 % of it painted with strokes: how well the rest is segmented, beside scikit-image's features with
scikit-learn's random forest.

The photographs are drawn house fronts (`hedgerow sample facades`), 4 of them, each painted with 3 sets of strokes.
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

TITLE = "Strokes on one photograph"
PART, N_PHOTOGRAPHS, N_PAINTERS = 0.01, 4, 3
OURS, BANK, DENSE = (
    "hedgerow, filter bank and pretrained network",
    "hedgerow, filter bank",
    "hedgerow, filter bank, settings for full labels",
)
PEER = "scikit-image + scikit-learn"
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
    painted = strokes != 255
    forest = RandomForestClassifier(n_estimators=100, n_jobs=THREADS, random_state=0)
    forest.fit(features[painted], strokes[painted])
    return forest.predict(features.reshape(-1, features.shape[-1])).reshape(strokes.shape)


CONTENDERS: dict[str, Predict] = {OURS: ours, BANK: with_bank, DENSE: partial(ours, config=StackConfig()), PEER: peer}


def compare(name: str, n_photographs: int, n_painters: int) -> tuple[list[float], float]:
    """Mean Dice on the unpainted pixels of each photograph, and CPU seconds of training and prediction."""
    set_threads(THREADS)
    images, labels = synthetic.facades(n_images=n_photographs, seed=5)
    predict = CONTENDERS[name]
    predict(images[0], synthetic.paint(labels[0], PART))  # kernels compile at their first use
    dice, start = [], time.process_time()
    for image, whole in zip(images, labels, strict=True):
        for painter in range(n_painters):
            strokes = synthetic.paint(whole, PART, seed=painter)
            found = predict(image, strokes)
            rest = np.where(strokes == 255, whole, 255)
            dice.append(scores([rest], [found], np.unique(whole).tolist()).mean_dice)
    return dice, (time.process_time() - start) / len(dice)


def run(small: bool = False) -> str:
    n_photographs, n_painters = (1, 1) if small else (N_PHOTOGRAPHS, N_PAINTERS)
    missing = {OURS: not default_encoder_is_installed(), PEER: not installed("skimage", "sklearn")}
    names = [name for name in CONTENDERS if not missing.get(name)]
    found = {name: in_fresh_process(compare, name, n_photographs, n_painters) for name in names}
    require(min(found[BANK][0]) > 0.2, "a segmentation by strokes is no better than guessing.")
    rows = [[name, f"{np.mean(dice):.3f}", f"{np.min(dice):.3f}", seconds(cpu)] for name, (dice, cpu) in found.items()]
    about = (
        f"How well does a model trained on strokes segment the rest of the same image? {n_photographs} drawn house "
        f"fronts with strokes on {PART:.0%} of their pixels, {n_painters} sets of strokes each:"
    )
    return f"{about}\n\n{table(['', 'mean Dice', 'worst', 'CPU s'], rows)}"
