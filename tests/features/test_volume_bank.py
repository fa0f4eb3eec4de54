"""The filter bank in three dimensions against scipy.ndimage, and its indifference to how a volume is cut."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

from hedgerow import threads
from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, ModelError
from hedgerow.features import bank as bank_of_features
from hedgerow.features import volume_scale
from hedgerow.features.bank import FILTERS, Bank, Proportions, intensity_range
from hedgerow.features.registry import features_from_images, fit_features, rebuild
from hedgerow.features.volume_scale import VOLUME_FILTERS, volume_channels
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers

# As in the definition of the channels; written out, so that a change of the program's constants is noticed.
DOG_RATIO, STRUCTURE_RATIO = 0.66, 0.5
SHAPES = [(9, 17, 23), (1, 12, 13), (2, 5, 6), (3, 1, 40), (20, 3, 1), (1, 1, 1)]


def noise(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def scipy_channels(volume, sigma, anisotropy):
    """VOLUME_FILTERS of one volume (Z,H,W), from scipy.ndimage and numpy.linalg in double precision."""

    def along(values, axis, s, order):
        filtered = ndimage.gaussian_filter1d(values, s, axis, order, mode="reflect")
        if order == 2:  # in volumes, that of a constant is 0
            filtered -= ndimage.gaussian_filter1d(np.ones(1), s, order=2, mode="reflect") * values
        return filtered

    def gauss(order=(0, 0, 0), s=sigma, of=volume):
        filtered = of.astype(np.float64)
        for axis, step in enumerate((anisotropy, 1, 1)):
            filtered = along(filtered, axis, s / step, order[axis]) / step ** order[axis]
        return filtered

    def eigenvalues(zz, zy, zx, yy, yx, xx):
        matrices = np.stack([zz, zy, zx, zy, yy, yx, zx, yx, xx], axis=-1).reshape(*zz.shape, 3, 3)
        return np.moveaxis(np.linalg.eigvalsh(matrices)[..., ::-1], -1, 0)

    z, y, x = gauss((1, 0, 0)), gauss((0, 1, 0)), gauss((0, 0, 1))
    zz, yy, xx = gauss((2, 0, 0)), gauss((0, 2, 0)), gauss((0, 0, 2))
    tensor = [gauss(s=STRUCTURE_RATIO * sigma, of=p) for p in (z * z, z * y, z * x, y * y, y * x, x * x)]
    hessian = zz, gauss((1, 1, 0)), gauss((1, 0, 1)), yy, gauss((0, 1, 1)), xx
    dog = gauss(s=DOG_RATIO * sigma) - gauss()
    simple = gauss(), zz + yy + xx, np.sqrt(z**2 + y**2 + x**2), dog
    return np.stack([*simple, *eigenvalues(*tensor), *eigenvalues(*hessian)])


def bank(volume, sigmas=(0.7, 1.6), anisotropy=1.0, **options):
    """A bank for volumes that standardises nothing."""
    features = features_from_images([volume], StackConfig(sigmas=sigmas, **options), anisotropy)
    zero, unit = np.zeros_like(features.input_mean), np.ones_like(features.input_std)
    return replace(features, input_mean=zero, input_std=unit)


@pytest.mark.parametrize(("sigma", "anisotropy"), [(0.7, 1.0), (1.6, 1.0), (1.6, 2.4), (3.5, 0.7), (5.0, 10.0)])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_bank_equals_scipy(shape, sigma, anisotropy):
    volume = noise(*shape)
    channels = bank(volume[None], (sigma,), anisotropy).compute(volume[None])
    np.testing.assert_array_equal(channels[0], volume)
    expected = scipy_channels(volume, sigma, anisotropy)
    for kind, ours, theirs in zip(VOLUME_FILTERS, channels[1:], expected, strict=True):
        # Eigenvalues are differences: their scale is that of all three.
        scale = max(np.abs(theirs).max(), np.abs(expected[4:7]).max() if "structure" in kind else 0, 0.1)
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * scale, rtol=0, err_msg=kind)


def test_a_scale_of_less_than_half_a_slice_is_filtered_slice_by_slice():
    volume = noise(1, 4, 14, 15)
    features = bank(volume, (0.7, 1.6, 3.5), 3.3)
    flat = replace(bank(volume, (0.7, 1.6)), dimensions=2)
    n_flat = 1 + 2 * len(FILTERS)
    assert features.n_features == n_flat + len(VOLUME_FILTERS) == len(features.names)
    assert features.names[:n_flat] == flat.names
    assert features.names[n_flat:] == tuple(f"{kind} 3.5" for kind in VOLUME_FILTERS)
    computed = features.compute(volume)
    for z in range(4):
        np.testing.assert_array_equal(computed[:n_flat, z], flat.raw_in(volume[:, z], Region.whole((14, 15))))
    assert (bank(volume, (0.7,), 2.0).halo_z, features.halo_z) == (0, 4 + 2)


def test_names_of_eigenvalues_count_from_high_to_low():
    features = bank(noise(2, 3, 8, 9), (1.6,))
    assert features.names[5:11] == tuple(
        f"c0 {kind} 1.6"
        for kind in ("structure_1", "structure_2", "structure_3", "hessian_1", "hessian_2", "hessian_3")
    )
    assert len(set(features.names)) == features.n_features == 2 * 11
    channels = features.compute(noise(2, 3, 8, 9)).reshape(2, 11, -1)
    for first in (5, 8):
        assert (np.diff(channels[:, first : first + 3], axis=1) <= 0).all()


@pytest.mark.parametrize("anisotropy", [1.0, 0.6, 3.1])
def test_a_region_has_the_bits_of_the_whole(anisotropy):
    volume = np.random.default_rng(2).random((2, 23, 41, 37)).astype(np.float32)
    features = fit_features([volume], StackConfig(sigmas=(0.7, 1.6, 3.5)), anisotropy=anisotropy)[0]
    whole = features.compute(volume)
    regions = [Region(5, 30, 3, 31, 7, 12), Region(0, 41, 0, 37, 22, 23), Region(40, 41, 36, 37, 0, 23)]
    regions += list(Region.whole(volume.shape[1:]).tiles((10, 17, 19)))
    for region in regions:
        np.testing.assert_array_equal(features.compute(volume, region), region.of_volume(whole))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_read_beyond_the_halo_or_before_it_is_written(seed, monkeypatch):
    """In volumes of all sizes, with filters of all proportions, memory that is not computed holds NaN."""
    rng = np.random.default_rng(seed)
    size = [int(n) for n in rng.integers(1, [14, 26, 26])]
    proportions = Proportions(*(float(rng.uniform(*ends)) for ends in ((0.05, 0.99), (0.05, 1), (1, 5))))
    sigmas, anisotropy = tuple(rng.uniform(0.3, 7, 2).tolist()), float(np.exp(rng.uniform(-1.5, 2.3)))
    volume = noise(1, *size)
    features = replace(bank(volume, sigmas, anisotropy), proportions=proportions)
    features.validate()
    whole = features.compute(volume)
    for module in (bank_of_features, volume_scale):
        monkeypatch.setattr(module, "empty", lambda shape: np.full(shape, np.nan, np.float32))
    np.testing.assert_array_equal(features.compute(volume), whole)
    front, top, left = (int(rng.integers(n)) for n in size)
    region = Region(
        top, int(rng.integers(top, size[1])) + 1, left, size[2], front, int(rng.integers(front, size[0])) + 1
    )
    halo = region.grown((features.halo_z, features.halo, features.halo), Region.whole(size))
    seen = np.full_like(volume, np.nan)
    halo.of_volume(seen)[...] = halo.of_volume(volume)
    np.testing.assert_array_equal(features.compute(seen, region), region.of_volume(whole))


def test_a_voxel_does_not_depend_on_where_the_volume_was_cut():
    volume = np.random.default_rng(2).random((1, 26, 30, 34)).astype(np.float32)
    features = fit_features([volume], StackConfig(sigmas=(0.7, 1.6)), anisotropy=1.2)[0]
    whole, halo, halo_z = features.compute(volume), features.halo, features.halo_z
    part = features.compute(volume[:, 3:, 2:, :31])
    inner = np.s_[:, 3 + halo_z :, 2 + halo :, : 31 - halo]
    np.testing.assert_array_equal(whole[inner], part[:, halo_z:, halo:, : 31 - halo])


@pytest.mark.parametrize("anisotropy", [0.8, 1.0, 1.7])
def test_the_halo_is_as_far_as_a_filter_looks(anisotropy):
    empty = np.zeros((1, 35, 35, 35), np.float32)
    dot = empty.copy()
    dot[0, 17, 17, 17] = 1
    features = bank(empty, (1.6,), anisotropy)
    differs = (features.compute(empty) != features.compute(dot)).any(axis=0)
    for axis, halo in enumerate((features.halo_z, features.halo, features.halo)):
        places = np.flatnonzero(differs.any(axis=tuple(other for other in range(3) if other != axis)))
        assert 17 - places[0] == places[-1] - 17 <= halo
    assert differs[17 - features.halo_z + 1].any()


def test_threads_do_not_change_features():
    volume = np.random.default_rng(5).random((1, 31, 20, 22)).astype(np.float32)
    features = fit_features([volume], StackConfig(sigmas=(0.7, 3.5)), anisotropy=2.0)[0]
    with threads.threads(1):
        by_one = features.compute(volume)
    with threads.threads(7):
        assert len(features._slabs(Region.whole((31, 20, 22)), 0.7)) > 1
        np.testing.assert_array_equal(features.compute(volume), by_one)


def test_scales_and_derivatives_are_those_of_the_object_and_not_of_its_slices():
    """The same blob, with slices three times as far apart, has the same features."""
    z, y, x = np.indices((60, 40, 40)) - np.array([29.0, 20, 20]).reshape(3, 1, 1, 1)
    blob = np.exp(-(z**2 + (y + 0.4 * z) ** 2 + 0.5 * x**2) / 60).astype(np.float32)
    near, far = (bank(v[None], (6.0,), a).compute(v[None]) for v, a in ((blob, 1.0), (blob[2::3], 3.0)))
    for name, expected, found in zip(VOLUME_FILTERS, near[1:, 2::3], far[1:], strict=True):
        # The structure tensor's own Gaussian is one slice wide.
        np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max(), err_msg=name)


def test_features_of_volumes_are_standardised():
    volumes = [(np.random.default_rng(d).random((1, d, 20, 21)) * 50 + 30_000).astype(np.float32) for d in (1, 2, 9)]
    features, computed = fit_features(volumes, StackConfig(sigmas=(1.0, 3.0)), anisotropy=1.5)
    values = np.concatenate([values.reshape(features.n_features, -1) for values in computed], axis=1)
    np.testing.assert_allclose(values.mean(axis=1), 0, atol=2e-4)
    np.testing.assert_allclose(values.std(axis=1), 1, atol=2e-4)
    assert np.isfinite(features.compute(np.full((1, 3, 5, 5), 7, np.float32))).all()


def test_a_volume_is_normalised_as_a_whole():
    volume = np.random.default_rng(2).random((1, 6, 30, 31)).astype(np.float32)
    volume[:, 3:] += 5
    config = StackConfig(sigmas=(0.7, 1.6), normalise=True)
    features = fit_features([volume], config, anisotropy=1.0)[0]
    np.testing.assert_allclose(features.compute(8 * volume + 64), features.compute(volume), atol=5e-3)
    low, width = intensity_range(volume)
    assert (volume < low).mean() < 0.02 < (volume < low + 0.99 * width).mean() < 1
    ramp = np.arange(130.0**3, dtype=np.float32).reshape(1, 130, 130, 130)  # of which only some voxels are read
    low, width = intensity_range(ramp)
    np.testing.assert_allclose([low[0], low[0] + width[0]], np.array([0.01, 0.998]) * ramp.size, atol=0.02 * ramp.size)


def test_opponent_colours_of_volumes():
    red, green, blue = planes = np.random.default_rng(3).integers(0, 255, (3, 4, 10, 11)).astype(np.float32)
    config = StackConfig(sigmas=(0.7,), opponent=True)
    features = fit_features([planes], config, anisotropy=1.0)[0]
    others = np.stack([planes.mean(0), red - green, blue - (red + green) / 2])
    plain = fit_features([others], replace(config, opponent=False), anisotropy=1.0)[0]
    np.testing.assert_allclose(features.compute(planes), plain.compute(others), rtol=0, atol=2e-4)
    assert features.names[11] == "red-green raw"


def test_a_scale_needs_memory_for_a_few_slices_only():
    """Of the filters' own, beside what they return and the channel that they filter."""
    shape, n_slices = (120, 40, 40), 6 * (2 * 3 + 8) + 60
    volume, whole = noise(*shape), Region.whole(shape)
    out = np.empty((len(VOLUME_FILTERS), *shape), np.float32)
    scale = Proportions().of_volume(1.6, 1.0)
    volume_channels(volume, whole, whole, whole, scale, out)
    buffers.release()
    tracemalloc.start()
    volume_channels(volume, whole, whole, whole, scale, out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    padded = 4 * shape[0] * (40 + 2 * 8) ** 2
    assert peak < 1.25 * (padded + 4 * n_slices * (40 + 2 * 8) ** 2)


def test_settings_of_images_are_those_of_versions_without_volumes():
    features = features_from_images([noise(1, 8, 9)], StackConfig(sigmas=(0.7,)))
    assert set(features.settings()) == {"kind", "n_inputs", "sigmas", "proportions"}
    assert (features.dimensions, features.halo_z) == (2, 0)


@pytest.mark.parametrize("anisotropy", [1.0, 2.75])
def test_settings_of_volumes_are_stored(anisotropy):
    volume = noise(1, 5, 8, 9)
    features = fit_features([volume], StackConfig(sigmas=(0.7, 1.6)), anisotropy=anisotropy)[0]
    again = rebuild(json.loads(json.dumps(features.settings())), features.arrays())
    assert (again.dimensions, again.anisotropy) == (3, anisotropy)
    np.testing.assert_array_equal(again.compute(volume), features.compute(volume))


@pytest.mark.parametrize(
    "change",
    [
        {"dimensions": 4},
        {"dimensions": 1},
        {"dimensions": True},
        {"dimensions": 3.0},
        {"dimensions": 2},  # which has fewer features than statistics
        {"dimensions": "3"},
        {"dimensions": None},
        {"anisotropy": 0},
        {"anisotropy": -1.0},
        {"anisotropy": 1e-9},  # a filter of a billion slices
        {"anisotropy": 0.01, "sigmas": [0.7, 500.0]},
        {"anisotropy": 1e9},
        {"anisotropy": float("nan")},
        {"anisotropy": "1"},
        {"anisotropy": None},
        {"anisotropy": [1.0]},
        {"anisotropy": 100.0},  # at which every scale is flat
    ],
)
def test_impossible_settings_are_refused(change):
    features = fit_features([noise(1, 5, 8, 9)], StackConfig(sigmas=(0.7, 1.6)), anisotropy=1.0)[0]
    changed = Bank.from_file({**features.settings(), **change}, features.arrays())
    with pytest.raises(ModelError):
        changed.validate()


@pytest.mark.parametrize("anisotropy", [0.0, -1.0, 1e-3, 1e6, float("nan"), float("inf")])
def test_impossible_voxels_are_refused(anisotropy):
    with pytest.raises(ConfigError, match="voxel size"):
        features_from_images([noise(1, 5, 8, 9)], StackConfig(sigmas=(0.7,)), anisotropy)


def test_scales_that_look_absurdly_far_across_slices_are_refused():
    with pytest.raises(ConfigError, match="slices far"):
        features_from_images([noise(1, 5, 8, 9)], StackConfig(sigmas=(0.7, 100.0)), 0.05)
