"""Model files: damaged bytes, and whole files, with a digest that fits, around a model that nobody trained."""

import copy
import json
from pathlib import Path

import numpy as np

import hedgerow as hr
from fuzz.arrays import change_arrays
from fuzz.damage import damaged
from fuzz.outcomes import require
from fuzz.values import change, pick
from hedgerow import extras
from hedgerow.forest.level_input import dimensions_of
from hedgerow.jobs.describing import description
from helpers.forests import grown_stack
from helpers.model_files import Contents

GOLDEN = Path(__file__).parents[1] / "io" / "golden"
SIZE, N_SLICES = (20, 23), 3
SLACK = 1e-4  # of the sum of probabilities in float32
# Words that mean something in a model file.
WORDS = (
    *("stack", "net", "bank", "channels", "depth", "joined", "normalise", "softmax", "hard", "soft", "tanh", "crelu"),
    *("exp", "sparse", "full", "frozen", "kind", "n_inputs", "sigmas", "members", "soft", "tolerance", "output"),
    *("deep", "alone", "reading", "pretrained", "nets", "weights", "reads", "orientations", "base", "n_down", "widest"),
)


class Models:
    """Makes and uses model files.

    bases: (name, bytes of a file, what it holds), of all kinds of models, as this version and the first write them
    """

    name = "models"

    words = WORDS

    def __init__(self, folder):
        self.bases = []
        for name, model in self.models(folder):
            path = folder / "base.hedge"
            hr.save(model, path)
            self.bases.append((name, path.read_bytes(), Contents.of(path)))
            self.use(path)  # which also loads what the worker needs, before its memory is limited

    def models(self, folder):
        """(name, model) of each kind; those of earlier versions are among the bases as files."""
        for path in sorted(GOLDEN.glob("*/*.hedge")):
            if not (extras.is_there("torch") or path.stem.startswith(("stack", "forest"))):
                continue
            self.bases.append((f"{path.stem} of {path.parent.name}", path.read_bytes(), Contents.of(path)))
            yield path.stem, hr.load(path)
        yield "joined", grown_stack("joined")[0]

    def write(self, rng, folder):
        """The file of a case, and what was done to it."""
        name, content, contents = pick(rng, self.bases)
        path = folder / "model.hedge"
        how = rng.random()
        if how < 0.15:
            changed, done = damaged(content, rng)
            path.write_bytes(changed)
        elif how < 0.2:
            changed, done = _other_header(content, rng)
            path.write_bytes(changed)
        else:
            changed = Contents(contents.version, copy.deepcopy(contents.model), dict(contents.arrays))
            done = ", ".join(_changes(changed, rng, self.words))
            changed.write(path)
        return path, f"{name}: {done}"

    def use(self, path):
        """Load and predict; save, load and predict the same bits."""
        model = hr.load(path)
        proba = self._predict(model)
        json.dumps(description(model))
        again = path.with_name("again.hedge")
        hr.save(model, again)
        require(self._predict(hr.load(again)).tobytes() == proba.tobytes(), "another prediction after saving")

    def _predict(self, model):
        size = (N_SLICES, *SIZE) if dimensions_of(model) == 3 else SIZE
        image = picture(model.features, size)
        proba = model.predict_proba(image)
        require(proba.shape == (len(model.classes), *size), f"probabilities of shape {proba.shape}")
        require(bool(np.isfinite(proba).all()), "probabilities that are not finite")
        require(bool((proba >= 0).all() and (proba <= 1 + SLACK).all()), "probabilities outside [0, 1]")
        require(bool((np.abs(proba.sum(0, dtype=np.float64) - 1) <= SLACK).all()), "probabilities that do not add to 1")
        labels = model.predict(image)
        require(labels.shape == size and set(np.unique(labels)) <= set(model.classes), "labels of no class")
        return proba


def picture(features, size):
    """An image for the model, always the same: planes (F,20,23), or a picture (20,23) or (20,23,C); or a volume."""
    shape = (features.n_inputs, *size)
    values = np.random.default_rng(0).integers(0, 4000, shape).astype(np.uint16)
    if features.layout == "planes":
        return values.astype(np.float32)
    return values[0] if features.n_inputs == 1 else np.moveaxis(values, 0, -1)


def _changes(contents, rng, words):
    for _ in range(pick(rng, (1, 1, 1, 2, 3))):
        if rng.random() < 0.5:
            parts = [contents.model[name] for name in ("features", "net", "deep") if name in contents.model]
            yield change(pick(rng, (contents.model, *parts)), rng, words)
        else:
            yield change_arrays(contents.arrays, rng)
    if rng.random() < 0.03:
        whole = {"version": contents.version}
        yield change(whole, rng)
        contents.version = whole.get("version")


def _other_header(content, rng):
    """The file with another table of contents: names, types, shapes and places of the arrays."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    done = change(header, rng, ("U8", "F64", "BF16", "I4", "dtype", "shape", "data_offsets"))
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + length :], f"header: {done}"
