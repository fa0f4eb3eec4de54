"""The prediction of a model for an image, tile by tile."""

from types import SimpleNamespace

import numpy as np
import pytest

from hedgerow.paint import model_predictions
from hedgerow.paint.pyramid import Pyramid
from helpers.paint import open_project


@pytest.mark.parametrize(("halo", "n_groups"), [(30, 6), (1500, 2)])
def test_features_that_look_far_are_computed_for_more_at_once(tmp_path, monkeypatch, halo, n_groups):
    project = open_project(tmp_path, 1, (600, 1100))
    project.close()
    asked = []

    def outputs(model, planes, region):
        asked.append(region)
        rows, columns = np.mgrid[region.top : region.bottom, region.left : region.right]
        first = ((rows + columns) % 7 < 3).astype(np.float32)
        return [np.stack([first, 1 - first])]

    monkeypatch.setattr(model_predictions, "region_outputs", outputs)
    model = SimpleNamespace(features=SimpleNamespace(halo=halo))
    tiles = [(row, column) for row in range(3) for column in range(5)]
    progress = []
    predicted = {}
    model_predictions.predict_tiles(
        model, Pyramid(project.images[0]), tiles, lambda text, done, total: progress.append((done, total)), predicted
    )
    assert (len(asked), progress[-1]) == (n_groups, (n_groups, n_groups))
    assert predicted[2, 4].classes.shape == (88, 76)
    rows, columns = np.mgrid[512:600, 1024:1100]
    assert np.array_equal(predicted[2, 4].classes, (rows + columns) % 7 >= 3)
