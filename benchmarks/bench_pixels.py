"""One image, a few labelled pixels: the job of a pixel classifier, beside scikit-image with scikit-learn.

1024 x 1024, 3 classes, 5 % labelled, 16 features, 100 trees of depth 10. On the same 16 channels the two
forests do the same work; beside that, our own filter bank does the whole job from the image.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hedgerow.config import AugmentConfig, ContextConfig, SamplingConfig, StackConfig
from hedgerow.features.bank import FILTERS
from hedgerow.features.registry import fit_features
from hedgerow.forest.settings_choice import fit_stack
from hedgerow.progress import silent
from hedgerow.threads import set_threads
from measure import (
    THREADS,
    Cost,
    comparison,
    in_fresh_process,
    installed,
    measure,
    require,
    seconds,
    table,
    verdict,
)

TITLE = "One image"
N_CLASSES, N_TREES, MAX_DEPTH, LABELLED_PART, UNLABELLED = 3, 100, 10, 0.05, 255
SAME, BANK, PEER = "hedgerow, same channels", "hedgerow, own bank", "scikit-image + scikit-learn"
PEER_SIGMAS = (1, 2, 4, 8)
"""scikit-image computes four channels at each scale, 16 in all."""
BANK_SIGMAS = (1.0, 4.0)
"""Our bank computes eight channels at each scale and adds the image, 17 in all."""
ACCURACY_SLACK = 0.01


def job_config(features: str) -> StackConfig:
    """One forest on every labelled pixel, without context, as a pixel classifier grows it."""
    return StackConfig(
        n_levels=1,
        n_trees=N_TREES,
        max_depth=MAX_DEPTH,
        min_split=2,
        held_out="none",
        features=features,
        sigmas=BANK_SIGMAS,
        context=ContextConfig(window=1),
        sampling=SamplingConfig(step=1, fraction=1.0),
        augment=AugmentConfig(copies=0),
    )


@dataclass(frozen=True)
class Outcome:
    """Costs of the steps (features: None where they were given), and accuracy on the unlabelled pixels."""

    features: Cost | None
    train: Cost
    predict: Cost
    accuracy: float

    @property
    def peak(self) -> float:
        """Megabytes of the whole process over the whole job."""
        return max(cost.peak for cost in (self.features, self.train, self.predict) if cost)


@dataclass(frozen=True)
class Job:
    """image: (H,W) float32; truth: (H,W) uint8; labels: (H,W) uint8, UNLABELLED at most pixels."""

    image: np.ndarray
    truth: np.ndarray
    labels: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> Job:
        return cls(*(np.load(folder / f"{name}.npy") for name in ("image", "truth", "labels")))

    def accuracy(self, predicted: np.ndarray) -> float:
        return float((predicted == self.truth)[self.labels == UNLABELLED].mean())


def make_job(folder: Path, side: int) -> None:
    """Three textures of one brightness: fine grain, coarse grain and stripes, in winding patches."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng(0)

    def grain(sigma: float) -> np.ndarray:
        noise = gaussian_filter(rng.standard_normal((side, side), np.float32), sigma)
        return noise / noise.std()

    rows, columns = np.indices((side, side), dtype=np.float32)
    stripes = np.sqrt(2) * np.sin(0.5 * rows + 0.3 * columns + 2 * grain(side / 16))
    truth = np.stack([grain(side / 24) for _ in range(N_CLASSES)]).argmax(axis=0).astype(np.uint8)
    textures = np.stack([grain(1.0), grain(2.5), stripes])
    image = np.take_along_axis(textures, truth[None].astype(np.int64), axis=0)[0] + 0.7 * grain(0)
    labels = np.where(rng.random(truth.shape) < LABELLED_PART, truth, UNLABELLED).astype(np.uint8)
    np.save(folder / "image.npy", image.astype(np.float32))
    np.save(folder / "truth.npy", truth)
    np.save(folder / "labels.npy", labels)


def peer_channels(image: np.ndarray) -> np.ndarray:
    """(H,W,16) float32 by scikit-image."""
    from skimage.feature import multiscale_basic_features

    low, high = PEER_SIGMAS[0], PEER_SIGMAS[-1]
    return multiscale_basic_features(image, sigma_min=low, sigma_max=high, workers=THREADS)


def run_peer(folder: Path, repeats: int) -> Outcome:
    """scikit-image's features and scikit-learn's forest; the features stay in the folder for the others."""
    from sklearn.ensemble import RandomForestClassifier

    job = Job.load(folder)
    peer_channels(job.image[:64, :64].copy())
    features_cost, channels = measure(lambda: peer_channels(job.image), repeats + 1)
    require(channels.shape[-1] == 16, f"scikit-image made {channels.shape[-1]} channels, expected 16.")
    np.save(folder / "channels.npy", channels.astype(np.float32, copy=False))
    labelled = job.labels != UNLABELLED
    samples, targets = channels[labelled], job.labels[labelled]

    def grow() -> RandomForestClassifier:
        forest = RandomForestClassifier(N_TREES, max_depth=MAX_DEPTH, n_jobs=THREADS, random_state=0)
        return forest.fit(samples, targets)

    train_cost, forest = measure(grow, repeats)
    pixels = channels.reshape(-1, channels.shape[-1])
    predict_cost, predicted = measure(lambda: forest.predict(pixels), repeats)
    return Outcome(features_cost, train_cost, predict_cost, job.accuracy(predicted.reshape(job.truth.shape)))


def run_on_same_channels(folder: Path, repeats: int) -> Outcome:
    """Our forest on scikit-image's channels."""
    job = Job.load(folder)
    channels = np.ascontiguousarray(np.moveaxis(np.load(folder / "channels.npy"), -1, 0))
    train, predict, accuracy = _fit_and_predict(channels, job, job_config("channels"), repeats)
    return Outcome(None, train, predict, accuracy)


def run_own_bank(folder: Path, repeats: int) -> Outcome:
    """The whole job from the image; training and prediction each compute the features they need."""
    set_threads(THREADS)
    job = Job.load(folder)
    config = job_config("bank")
    bank, _ = fit_features([job.image[None]], config)
    features = measure(lambda: bank.compute(job.image[None]), repeats + 1)[0]
    return Outcome(features, *_fit_and_predict(job.image, job, config, repeats))


def _fit_and_predict(image: np.ndarray, job: Job, config: StackConfig, repeats: int) -> tuple[Cost, Cost, float]:
    set_threads(THREADS)
    corner = np.ascontiguousarray(image[..., :64, :64])
    halves = np.repeat(np.arange(2, dtype=np.uint8), 32)[:, None].repeat(64, axis=1)
    fit_stack([corner], [halves], config, progress=silent).predict(corner, progress=silent)  # compiles
    train, stack = measure(lambda: fit_stack([image], [job.labels], config, progress=silent), repeats)
    predict, predicted = measure(lambda: stack.predict(image, progress=silent), repeats)
    return train, predict, job.accuracy(predicted)


def run(small: bool = False) -> str:
    side, repeats = (256, 1) if small else (1024, 2)
    if not installed("skimage", "sklearn"):
        return "Not run: scikit-image or scikit-learn is not installed, so there is nothing to set us beside."
    with tempfile.TemporaryDirectory() as name:
        in_fresh_process(make_job, Path(name), side)
        peer = in_fresh_process(run_peer, Path(name), repeats)
        same = in_fresh_process(run_on_same_channels, Path(name), repeats)
        bank = in_fresh_process(run_own_bank, Path(name), repeats)
    require(
        same.accuracy >= peer.accuracy - ACCURACY_SLACK,
        f"our accuracy is {same.accuracy:.4f}, the peer's {peer.accuracy:.4f}.",
    )
    return _report(side, {SAME: same, BANK: bank, PEER: peer})


def _report(side: int, outcomes: dict[str, Outcome]) -> str:
    same, bank, peer = outcomes.values()
    overview = [
        [
            name,
            seconds(outcome.features.cpu) if outcome.features else "given",
            seconds(outcome.train.cpu),
            seconds(outcome.predict.cpu),
            f"{outcome.peak:.0f}",
            f"{outcome.accuracy:.4f}",
        ]
        for name, outcome in outcomes.items()
    ]
    training = {name: outcome.train for name, outcome in outcomes.items()}
    predicting = {name: outcome.predict for name, outcome in outcomes.items()}
    less = "less" if max(same.peak, bank.peak) < peer.peak else "NOT LESS"
    return "\n".join(
        [
            f"{side} x {side}, {N_CLASSES} classes, {LABELLED_PART:.0%} labelled, 16 features "
            f"(our own bank: {1 + len(FILTERS) * len(BANK_SIGMAS)}), {N_TREES} trees of depth {MAX_DEPTH}, "
            f"{THREADS} threads.",
            "",
            "CPU seconds of each step, peak memory of the whole process, accuracy on the unlabelled pixels "
            "(with our own bank, training and prediction include the features):",
            "",
            table(["contender", "features", "train", "predict", "peak MB", "accuracy"], overview),
            "",
            "Training:",
            "",
            comparison(training, PEER),
            "",
            "Prediction:",
            "",
            comparison(predicting, PEER),
            "",
            verdict("training on the same channels", same.train.cpu, peer.train.cpu, 1 / 4),
            verdict("prediction on the same channels", same.predict.cpu, peer.predict.cpu, 1 / 3),
            f"- memory: {same.peak:.0f} and {bank.peak:.0f} MB, the peer {peer.peak:.0f} MB: {less}.",
        ]
    )
