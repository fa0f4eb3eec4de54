"""Forests on codes: the kernels against the definition, and the pixels that a forest is grown on."""

import numpy as np
import pytest

from hedgerow.forest.level_input import whole_input
from hedgerow.forest.walk import run_forest
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu import walk_codes
from hedgerow.kernels.cpu.plane_ops import encode
from hedgerow.kernels.cpu.walk_codes import SQUARE
from hedgerow.paint.code_cache import EncodedRegion, live_config
from hedgerow.paint.quick_forest import QuickForest, balanced_sample, grow_on_codes

EDGES = np.arange(1, 256, dtype=np.float32)[None].repeat(7, axis=0)  # the code of a whole number is that number


def grown(n_classes=3, n_trees=5, seed=0, n_samples=500):
    """A forest on random codes (P,S), and the codes (40,300,P) of an image: its left is smooth, its right is noise."""
    rng = np.random.default_rng(seed)
    read = rng.integers(0, 256, (7, n_samples)).astype(np.uint8)
    target = (read[0].astype(int) + read[3] * 2 + rng.integers(0, 90, n_samples)) * n_classes // 860
    forest = grow_on_codes(read, target, EDGES, n_classes, live_config(1, n_trees))
    codes = rng.integers(0, 256, (40, 300, 7)).astype(np.uint8)
    codes[:, :150] = codes[::20, :150:50].repeat(20, axis=0).repeat(50, axis=1)
    return forest, codes


def squares_of(codes):
    return EncodedRegion.of(np.ascontiguousarray(codes.transpose(2, 0, 1), np.float32), EDGES)


def packed(forest):
    return QuickForest.of(forest, range(forest.votes.shape[1]))


@pytest.mark.parametrize(("n_classes", "n_trees", "n_samples"), [(2, 1, 500), (3, 5, 500), (5, 16, 5000)])
def test_walking_codes_says_what_walking_planes_says(n_classes, n_trees, n_samples):
    forest, codes = grown(n_classes, n_trees, n_samples=n_samples)
    window = Region(16, 37, 32, 290)
    tile = packed(forest).predict(squares_of(codes), window)
    planes = np.ascontiguousarray(codes.transpose(2, 0, 1))
    proba = window.of(run_forest(forest, whole_input(planes))[:, 0])
    assert np.abs(tile.proba - proba * 255).max() <= 0.5001
    two = np.sort(proba, axis=0)[-2:]
    clear = two[1] - two[0] > 1e-6
    assert clear.mean() > 0.7
    assert np.array_equal(tile.classes[clear], proba.argmax(axis=0)[clear])
    some = codes[3:20, 7:40].reshape(-1, 7)
    whole = packed(forest).predict(squares_of(codes)).classes
    assert np.array_equal(packed(forest).predict_classes(some), whole[3:20, 7:40].ravel())


def test_a_square_goes_down_a_tree_as_its_pixels_do():
    forest, codes = grown(4, 3, n_samples=3000)
    trees, squares = packed(forest), squares_of(codes).codes
    shared = trees.channel, trees.cut, trees.left, trees.leaf, trees.votes
    depth = int(trees.depth.max()) + 2
    visits = []
    for square in (squares[0, 1], squares[0, 15]):
        together, alone = np.zeros((2, 4, SQUARE), np.float32)
        for root, deep in zip(trees.root, trees.depth, strict=True):
            room = np.empty((depth, SQUARE), np.uint8), np.empty(depth, np.int64)
            visits.append(walk_codes.walk_together(square, root, *shared, *room, together))
            walk_codes.walk_alone(square, root, deep, *shared, np.empty(SQUARE, np.uint32), alone)
        assert np.array_equal(together, alone)
    assert max(visits[:3]) <= depth  # a square of one colour
    assert max(visits[3:]) > walk_codes.MAX_SQUARE_NODES


def test_codes_in_squares_are_the_codes():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 50, 37)).astype(np.float32)
    edges = np.sort(rng.normal(size=(3, 255))).astype(np.float32)
    squares, expected = EncodedRegion.of(values, edges), np.empty((3, 50, 37), np.uint8)
    for plane, edge, out in zip(values, edges, expected, strict=True):
        encode(plane.ravel(), edge, out.ravel())
    assert np.array_equal(squares.image().transpose(2, 0, 1), expected)
    row, column = np.array([0, 17, 49]), np.array([36, 16, 3])
    assert np.array_equal(squares.at(row, column), expected[:, row, column].T)


def test_a_rare_class_keeps_its_paint():
    value = np.repeat([0, 1, 2], [50_000, 10, 3000]).astype(np.uint8)
    chosen = balanced_sample(value, 4000)
    assert np.bincount(value[chosen]).tolist() == [1995, 10, 1995]
    assert np.array_equal(balanced_sample(value[:100], 4000), np.arange(100))
