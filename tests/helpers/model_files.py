"""What model files are held to: the same model comes back, or one sentence refuses the file."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from hedgerow import files
from hedgerow.errors import ModelError
from hedgerow.io.model_file import load
from helpers.refusals import assert_one_sentence

FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclasses.dataclass
class Contents:
    """What a model file holds, open to change."""

    version: object
    model: dict
    arrays: dict

    @classmethod
    def of(cls, path):
        with safe_open(path, framework="np") as file:
            document = json.loads(file.metadata()["hedgerow"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return cls(document["version"], document["model"], arrays)

    def write(self, path, digest=None):
        digest = digest or files.digest([self.version, self.model], self.arrays)
        document = {"version": self.version, "model": self.model, "digest": digest}
        path.write_bytes(to_bytes(self.arrays, metadata={"hedgerow": json.dumps(document)}))


def assert_same_model(result, expected):
    for name in ("classes", "unlabelled", "image_dtype", "settings", "n_levels", "receptive_field"):
        assert getattr(result, name) == getattr(expected, name), name
    assert result.features.settings() == expected.features.settings(), "features"
    pairs = [(result.features, expected.features), *zip(result.levels, expected.levels, strict=True)]
    for mine, theirs in pairs:
        for field in dataclasses.fields(mine):
            array = getattr(theirs, field.name)
            if isinstance(array, np.ndarray):
                assert getattr(mine, field.name).dtype == array.dtype, field.name
                assert getattr(mine, field.name).tobytes() == array.tobytes(), field.name


def refused(path):
    """The sentence that refuses the file; anything but a ModelError fails the test."""
    with pytest.raises(ModelError) as refusal:
        load(path)
    assert_one_sentence(refusal, path)
    return str(refusal.value)


def refusal(contents, folder):
    """The sentence that refuses a file with these contents."""
    contents.write(folder / "deceit.hedge")
    return refused(folder / "deceit.hedge")
