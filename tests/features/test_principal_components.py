"""Principal components against a definition, and their independence of signs and orders."""

import numpy as np

from hedgerow.features.encoder import principal_components


def test_components_are_those_of_the_singular_value_decomposition():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(400, 3)) * [5, 2, 1]) @ rng.normal(size=(3, 7)) + rng.normal(size=(400, 7)) * 0.1 + 3
    components = principal_components(rows.astype(np.float32), 3)
    assert components.shape == (3, 7)
    assert components.dtype == np.float32
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    right = np.linalg.svd(standard, full_matrices=False)[2][:3]
    ours = components * rows.std(axis=0)
    np.testing.assert_allclose(np.abs((ours * right).sum(axis=1)), 1, atol=1e-3)


def test_channels_that_never_change_are_left_out():
    rows = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    rows[:, 2] = 8
    components = principal_components(rows, 9)
    assert len(components) == 3, "there are no more components than directions"
    assert (components[:, 2] == 0).all()
    assert np.isfinite(components).all()


def test_nothing_changes_at_all():
    found = principal_components(np.full((20, 3), 5, np.float32), 2)
    assert len(found) >= 1
    assert np.isfinite(found).all()


def test_the_order_of_the_rows_leaves_no_trace():
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(300, 6)).astype(np.float32) @ rng.normal(size=(6, 6)).astype(np.float32)
    np.testing.assert_array_equal(principal_components(rows, 4), principal_components(rows[::-1], 4))
