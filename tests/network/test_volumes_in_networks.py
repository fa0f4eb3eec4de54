"""Networks on volumes: the same function as the forests, the same gradients as the definition, and back again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.images.regions import Region
from hedgerow.kernels.definition import level as definition
from hedgerow.network.layout import lay_out, region_grid
from hedgerow.predict.evaluate import labelled_for
from hedgerow.refinement.sampler import Sampler
from helpers.volumes import CONFIG, labelled_volume, labelled_volumes


@pytest.fixture(scope="module")
def stack():
    return hr.fit_stack(*labelled_volumes(), CONFIG, voxel_size=(2, 1, 1))


@pytest.fixture(scope="module")
def refined(stack):
    validation = labelled_volumes(6)
    return hr.refine(
        hr.to_convnet(stack), *labelled_volumes(), hr.RefineConfig(n_steps=12, check_every=6),
        validation=(validation[0][4:], validation[1][4:]),
    )  # fmt: skip


@pytest.mark.parametrize("size", [(1, 7, 9), (2, 9, 7), (5, 13, 11)])
def test_the_network_of_hard_splits_is_the_forest(stack, size):
    volume, _ = labelled_volume(7, size)
    net = hr.to_convnet(stack, split="hard")
    for mine, theirs in zip(net.level_outputs(volume), stack.level_outputs(volume), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    np.testing.assert_array_equal(net.predict(volume), stack.predict(volume))


def test_tiles_do_not_change_a_bit(refined):
    volume, _ = labelled_volume(7, (6, 13, 11))
    np.testing.assert_array_equal(refined.predict_proba(volume, tile=(2, 5, 7)), refined.predict_proba(volume))


@pytest.mark.parametrize("size", [(1, 7, 9), (2, 9, 7), (3, 5, 11)])
@pytest.mark.parametrize("split", ["soft", "tanh", "crelu"])
def test_gradients_are_those_of_the_definition(stack, size, split):
    """Of a second level, whose offsets reach into other slices, with respect to weights, votes and the level before."""
    net = hr.to_convnet(stack, split=split)
    net.relax(0.1)
    volume, _ = labelled_volume(7, size)
    source, level, grid = net.source(volume[None]), net.level(1), region_grid(Region.whole(size))
    assert level.forest.offset[..., 0].any()
    with torch.no_grad():
        before = net(source, [grid])[-1].softmax(dim=0)
    slope = torch.from_numpy(np.random.default_rng(0).normal(size=(3, *size)).astype(np.float32))

    def gradients(is_fused):
        level.zero_grad()
        known = before.clone().requires_grad_(True)
        full = replace(source, before=known, known=grid)
        if is_fused:
            scores = level(full, grid)
        else:
            values, reads = lay_out(level.forest, level.wiring, full, grid)
            weights = level.split_weight, level.split_bias, level.leaf_weight, level.leaf_bias, level.vote_weight
            scores = definition.level_scores(values, reads, level.wiring, *weights, level.split, level.activation)
        scores.reshape(3, *size).mul(slope).sum().backward()
        trained = level.split_weight, level.split_bias, level.vote_weight, known
        return [scores.detach().reshape(3, *size), *(tensor.grad.clone() for tensor in trained)]

    for fused, defined in zip(gradients(True), gradients(False), strict=True):
        scale = float(defined.abs().max())
        torch.testing.assert_close(fused, defined, atol=1e-4 * max(scale, 1e-3), rtol=1e-3)


def test_refinement_improves_volumes_it_has_not_seen(refined, stack):
    checks = refined.refinements[-1].checks
    assert refined.refinements[-1].n_scored == 2
    assert checks[-1].mean_dice > checks[0].mean_dice - 0.01
    volume, labels = labelled_volume(7)
    assert hr.evaluate(refined, [volume], [labels]).mean_dice > hr.evaluate(stack, [volume], [labels]).mean_dice - 0.01


@pytest.mark.parametrize("method", ["weights", "leaf_mean", "fitted", "soft"])
def test_the_network_maps_back(refined, method):
    volumes, _ = labelled_volumes()
    back = hr.to_forest(refined, volumes, method)
    volume, labels = labelled_volume(7)
    if method == "soft":
        np.testing.assert_allclose(back.predict_proba(volume), refined.predict_proba(volume), atol=1e-5)
    assert hr.evaluate(back, [volume], [labels]).mean_dice > 0.85
    if method in ("leaf_mean", "fitted"):
        named = hr.to_forest(refined, [volume[..., None] for volume in volumes], method, axes="ZYXC")
        np.testing.assert_array_equal(named.levels[-1].votes, back.levels[-1].votes)
        assert hr.to_forest(refined, volumes, method, stride=3).predict(volume).shape == volume.shape


def test_mapping_back_needs_volumes(refined):
    with pytest.raises(InputError, match="learned from volumes"):
        hr.to_forest(refined, [labelled_volume(0)[0][0]])


def test_a_refined_network_is_saved(refined, tmp_path):
    hr.save(refined, tmp_path / "net.hedge")
    volume, _ = labelled_volume(7)
    np.testing.assert_array_equal(hr.load(tmp_path / "net.hedge").predict_proba(volume), refined.predict_proba(volume))


def test_a_step_sees_the_surroundings_of_its_slices(refined):
    """A run of slices is cut with all that it depends on, so the network computes there what it computes in all."""
    volume, labels = labelled_volume(3, (23, 9, 10))
    image = labelled_for(refined, [volume], [labels]).images[0]
    config = hr.RefineConfig(stride=1, augment=hr.AugmentConfig(rotation=0.0))
    sampler = Sampler(refined, [image], config, 3, 0)
    whole = refined.predict_proba(volume)
    for step in range(3):
        shown = sampler.at(step)
        assert shown.grid.depth == 4
        assert shown.source.extent[0] < 23
        with torch.no_grad():
            scores = refined(shown.source, refined.grids(shown.source.extent, shown.grid))[-1].softmax(dim=0).numpy()
        n = [z for z in range(20) if np.array_equal(labels[z : z + 4], shown.target)]
        assert any(np.abs(whole[:, z : z + 4] - scores).max() < 1e-4 for z in n)


def test_effort_good_fits_volumes():
    volumes, labels = labelled_volumes(4, (3, 12, 12))
    config = replace(CONFIG, n_levels=1, n_trees=2)
    model = hr.fit(volumes, labels, "good", config, minutes=0.02, voxel_size=(2, 1, 1))
    assert model.predict(volumes[0]).shape == volumes[0].shape
