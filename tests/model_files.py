"""What model files are held to: the same model comes back, or one sentence refuses the file."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from hedgerow.errors import ModelError
from hedgerow.model_io import load
from refusals import assert_one_sentence

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same_model(found, expected):
    for name in ("classes", "unlabelled", "image_dtype", "settings", "n_levels", "receptive_field"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.features.to_dict() == expected.features.to_dict(), "features"
    pairs = [(found.features, expected.features), *zip(found.levels, expected.levels, strict=True)]
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
