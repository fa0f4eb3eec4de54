"""Where to paint next: where the model is unsure, unlike the paint, in large areas."""

import numpy as np
import pytest

from hedgerow.paint import raster, suggestions
from hedgerow.paint.code_cache import CodeCache, MemoryCache
from hedgerow.paint.messages import Refused
from hedgerow.paint.segmenter import Segmenter
from helpers.paint import Listener, drawn, open_project, paint_strokes

SIZE = (20, 30)


def case():
    """Cells that are all alike and certain, with paint in one corner."""
    looks = np.full((*SIZE, 3), 50, np.float32)
    painted = np.zeros(SIZE, bool)
    painted[0, 0] = True
    return np.full(SIZE, 0.1), looks, painted, looks[0, :1]


def cell(place):
    return place.row // suggestions.CELL_SIDE, place.column // suggestions.CELL_SIDE


def test_where_the_model_is_unsure():
    unsure, looks, painted, known = case()
    unsure[12:15, 20:23] = 0.9
    place = suggestions.suggest_place(unsure, looks, painted, known)
    assert cell(place) == (13, 21)
    assert "unsure" in place.why


def test_where_the_image_is_unlike_what_is_painted():
    unsure, looks, painted, known = case()
    looks[4:7, 10:13] = 200
    place = suggestions.suggest_place(unsure, looks, painted, known)
    assert cell(place) == (5, 11)
    assert "unlike what is painted" in place.why


def test_of_two_alike_the_larger():
    unsure, looks, painted, known = case()
    unsure[2:4, 2:4] = 0.9
    unsure[10:18, 10:20] = 0.9
    row, column = cell(suggestions.suggest_place(unsure, looks, painted, known))
    assert 10 <= row < 18
    assert 10 <= column < 20


def test_never_beside_paint_unless_nothing_else_is_left():
    unsure, looks, painted, known = case()
    unsure[0, 1] = 1.0
    assert cell(suggestions.suggest_place(unsure, looks, painted, known)) != (0, 1)
    painted[:] = True
    painted[7, 7] = False
    assert cell(suggestions.suggest_place(unsure, looks, painted, known)) == (7, 7)
    painted[:] = True
    assert suggestions.suggest_place(unsure, looks, painted, known) is None


def test_with_nothing_known_everything_is_new():
    unsure, looks, painted, _ = case()
    assert (suggestions.novelty(looks, np.zeros((0, 3))) == 1).all()
    assert suggestions.suggest_place(unsure, looks, painted, np.zeros((0, 3))) is not None


def test_novelty_is_the_distance_to_the_nearest():
    rng = np.random.default_rng(0)
    looks, known = rng.random((9, 8, 5)) * 255, rng.random((40, 5)) * 255
    flat = np.sqrt(((looks.reshape(-1, 1, 5) - known[None]) ** 2).sum(axis=2)).min(axis=1)
    expected = np.minimum(flat / np.quantile(flat, 0.99), 1.5).reshape(9, 8)
    assert np.abs(suggestions.novelty(looks, known) - expected).max() < 1e-3


def test_means_of_cells():
    values = np.random.default_rng(0).random((2 * suggestions.CELL_SIDE + 3, suggestions.CELL_SIDE + 1))
    means = suggestions.cell_means(values)
    assert means.shape == (3, 2)
    assert means[0, 0] == pytest.approx(values[: suggestions.CELL_SIDE, : suggestions.CELL_SIDE].mean())
    assert means[2, 1] == pytest.approx(values[2 * suggestions.CELL_SIDE :, suggestions.CELL_SIDE :].mean())
    planes = suggestions.cell_means(np.stack([values, 2 * values], axis=2))
    assert np.allclose(planes[..., 1], 2 * means)


def test_looks_of_paint_are_means_of_its_cells():
    codes = np.array([[0, 10], [20, 10], [100, 7]], np.uint8)
    row, column = np.array([0, 1, 90]), np.array([3, 2, 5])
    assert suggestions.painted_looks(codes, row, column).tolist() == [[10, 10], [100, 7]]
    assert suggestions.painted_looks(codes[:0], row[:0], column[:0]).shape == (0, 2)


def test_in_a_project(tmp_path):
    size = (300, 280)
    project = open_project(tmp_path, 2, size)
    segmenter, listener = Segmenter(project, CodeCache(project, MemoryCache())), Listener()
    with pytest.raises(Refused, match="two classes"):
        segmenter.where_next(listener, 0, 0)
    paint_strokes(project, 0, ((0, 40, 30), (1, 60, 130), (0, 200, 20), (1, 20, 220)))
    before = project.labels[0].whole()
    seen = []
    for _ in range(3):
        place = segmenter.where_next(listener, 0, 0)
        assert (place["say"], place["image"]) == ("next", 0)
        row, column = place["row"], place["col"]
        assert before[row, column] == 255
        assert all(
            abs(row - at[0]) + abs(column - at[1]) > 2 * suggestions.CELL_SIDE for at in seen
        )  # painted: elsewhere next
        seen.append((row, column))
        project.labels[0].paint(raster.covered([[row, column]], 5, size), int(drawn(0, size)[1][row, column]))
    assert segmenter.where_next(listener, None, 0)["image"] in (0, 1)
    project.close()
