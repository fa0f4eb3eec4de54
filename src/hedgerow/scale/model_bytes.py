"""Models on their way to other machines: as the bytes of their file, loaded once by each worker."""

import hashlib
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from hedgerow.io import model_file
from hedgerow.predict.devices import no_cuda
from hedgerow.predict.protocol import Model


def content_of(model: Any) -> bytes:
    """The bytes of the file of a model, or of what `load` returned."""
    if isinstance(model, str | Path):
        model_file.load(model)  # refuses anything else with a sentence
        return Path(model).read_bytes()
    return model_file.file_content(model.to("cpu"))


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


@lru_cache(maxsize=2)
def loaded(content: bytes, device: str) -> Model:
    """The model on a device: "cpu", "cuda", or "auto" for a GPU if there is one and the model gains by it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.hedge").write_bytes(content)
        model: Any = model_file.load(Path(folder) / "model.hedge")
    model.features.check_here()
    found: Model = model.to(resolved(device, model))
    return found


def resolved(device: str, model: Any) -> str:
    """The device that "auto" stands for: a GPU for networks and encoders, if there is one; forests need none."""
    if device != "auto":
        return device
    kinds = {one.kind for one in getattr(model.features, "members", (model.features,))}
    gains = type(model).__name__ != "ForestStack" or "encoder" in kinds
    return "cuda" if gains and no_cuda() is None else "cpu"
