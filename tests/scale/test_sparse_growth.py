"""Training on parts of images gives the same model, to the last byte, as training on whole ones."""

import pickle
from argparse import Namespace
from dataclasses import replace

import numpy as np
import pytest
from scipy import ndimage

import hedgerow as hr
from hedgerow import jobs
from hedgerow.config import ContextConfig, SamplingConfig
from hedgerow.features import protocol
from hedgerow.forest import samples, sparse_training
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.samples import choose_pixels, draw_samples, strokes, with_groups
from hedgerow.forest.sparse_training import LabelledPixels, sparse_training_set
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.given import labelled_set
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.io.model_file import file_content
from hedgerow.scale import cluster, sparse_growth
from helpers.blobs import blobs
from helpers.files import write
from helpers.large import write_zarr

STROKES = hr.StackConfig(
    n_levels=1,
    n_trees=4,
    min_split=2,
    sigmas=(0.7, 2.0),
    context=ContextConfig(window=1),
    sampling=SamplingConfig(step=1),
)
CONTEXT = replace(STROKES, n_levels=2, context=ContextConfig(window=9, n_offsets=3), drop_levels=False)


def scribbled(n_images, seed=0, shape=(90, 120)):
    """Images, and labels with little paint."""
    images, full = blobs(n_images, seed, shape)
    rng = np.random.default_rng(seed)
    labels = []
    for truth in full:
        painted = np.full(truth.shape, 255, np.uint8)
        for value in np.unique(truth):
            places = np.argwhere(truth == value)
            for row, column in places[rng.choice(len(places), 3)]:
                stroke = (slice(row, row + 2), slice(column, column + 5))
                painted[stroke] = truth[stroke]
        labels.append(painted)
    return images, labels


def write_set(folder, images, labels):
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        write_zarr(folder / "images" / f"{i}.zarr", image, chunks=(32, 32))
        write(folder / "labels" / f"{i}.png", label)
    return str(folder / "images"), str(folder / "labels")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(sparse_growth, "LARGE_SET_PIXELS", 1000)
    monkeypatch.setattr(sparse_growth, "MAX_LOADED_FRACTION", 10.0)
    monkeypatch.setattr(protocol, "TILE_SIDE", 64)
    monkeypatch.setattr("hedgerow.features.registry.TILE_SIDE", 64)
    monkeypatch.setattr(sparse_training, "MIN_TILE_SIDE", 32)


@pytest.mark.parametrize("n_images", [2, 5])
@pytest.mark.parametrize("config", [STROKES, CONTEXT, None], ids=["strokes", "context", "by itself"])
def test_the_same_model(tmp_path, n_images, config):
    images, labels = scribbled(n_images)
    if config is CONTEXT and n_images < 4:
        labels = blobs(n_images, 0, (90, 120))[1]  # blocks: strokes in few images have one level
    expected = hr.fit_stack(images, labels, config)
    messages = []
    result = jobs.train(
        jobs.TrainRequest(*write_set(tmp_path, images, labels), tmp_path / "a.hedge", config=config),
        say=messages.append,
    )
    assert file_content(result.model) == file_content(expected)
    assert any("of their pixels are loaded" in one for one in messages)


@pytest.mark.parametrize(
    "changes",
    [
        {"context": ContextConfig(window=9, n_offsets=3, n_probes=2)},
        {"sampling": SamplingConfig(kind="per_class", per_class=7)},
        {"sampling": SamplingConfig(step=3, fraction=0.4, at_least=9)},
        {"sampling": SamplingConfig(step=1, max_samples=100)},
        {"balance": True, "n_levels": 3},
        {"normalise": True},
    ],
)
def test_the_same_model_with_other_settings(tmp_path, changes):
    images, labels = scribbled(5, seed=3)
    config = replace(CONTEXT, **changes)
    expected = hr.fit_stack(images, labels, config)
    found = jobs.train(jobs.TrainRequest(*write_set(tmp_path, images, labels), tmp_path / "a.hedge", config=config))
    assert file_content(found.model) == file_content(expected)


def test_statistics_of_many_squares_are_those_of_some(tmp_path, monkeypatch):
    monkeypatch.setattr(protocol, "MAX_SUM_TILES", 3)
    images, labels = scribbled(5, seed=4)
    expected = hr.fit_stack(images, labels, STROKES)
    found = jobs.train(jobs.TrainRequest(*write_set(tmp_path, images, labels), tmp_path / "a.hedge", config=STROKES))
    assert file_content(found.model) == file_content(expected)
    assert sum(map(len, protocol.sampled_tiles([(90, 120)] * 5))) == 3
    assert [len(some) for some in protocol.sampled_tiles([(64, 64), (65, 64)])] == [1, 2]


def test_own_channels(tmp_path):
    images, labels = scribbled(2)
    planes = [np.stack([image, image // 2]).astype(np.float32) for image in images]
    config = replace(STROKES, features="channels")
    expected = hr.fit_stack(planes, labels, config)
    for i, (one, label) in enumerate(zip(planes, labels, strict=True)):
        write(tmp_path / "images" / f"{i}.npy", one)
        write(tmp_path / "labels" / f"{i}.png", label)
    result = jobs.train(
        jobs.TrainRequest(str(tmp_path / "images"), str(tmp_path / "labels"), tmp_path / "a.hedge", config=config)
    )
    assert file_content(result.model) == file_content(expected)


def test_whether_zero_is_unlabelled_is_asked_where_there_is_paint(tmp_path, monkeypatch):
    """A large label map is read in parts, the first of which may have no paint."""
    monkeypatch.setattr(sparse_growth, "READ_ROWS", 50)
    monkeypatch.setattr(sparse_growth, "LARGE_PIXELS", 100)
    images = blobs(2, 0, (120, 160))[0]
    labels = [np.zeros(image.shape, np.uint8) for image in images]
    for label in labels:
        label[70, 20:60], label[100:102, 90:150] = 1, 2
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        write_zarr(tmp_path / "images" / f"{i}.zarr", image, chunks=(32, 32))
        write_zarr(tmp_path / "labels" / f"{i}.zarr", label, chunks=(32, 32))
    result = jobs.train(
        jobs.TrainRequest(
            str(tmp_path / "images"), str(tmp_path / "labels"), tmp_path / "a.hedge", config=STROKES, unlabelled="auto"
        )
    )
    assert file_content(result.model) == file_content(hr.fit_stack(images, labels, STROKES, unlabelled=0))


def test_pictures_count_as_much_too(tmp_path, monkeypatch):
    """Files that are read as a whole declare their size; Pillow's own limit does not refuse them."""
    images, labels = scribbled(2)
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        write(tmp_path / "images" / f"{i}.png", image)
        write(tmp_path / "labels" / f"{i}.png", label)
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 1000)
    messages = []
    jobs.train(
        jobs.TrainRequest(str(tmp_path / "images"), str(tmp_path / "labels"), tmp_path / "a.hedge", config=STROKES),
        say=messages.append,
    )
    assert any("of their pixels are loaded" in one for one in messages)


def test_only_what_is_needed_is_read(tmp_path, monkeypatch):
    """In an image much larger than its paint, features are computed only near the paint and for the statistics."""
    images, labels = scribbled(1, shape=(500, 600))
    monkeypatch.setattr(protocol, "MAX_SUM_TILES", 2)
    computed = []
    bank = hr.fit_stack(images, labels, STROKES).features
    raw_in = type(bank).raw_in
    monkeypatch.setattr(
        type(bank), "raw_in", lambda self, image, region: computed.append(region) or raw_in(self, image, region)
    )
    jobs.train(jobs.TrainRequest(*write_set(tmp_path, images, labels), tmp_path / "a.hedge", config=STROKES))
    assert sum(region.height * region.width for region in computed) < 0.15 * images[0].size


def test_settings_that_need_whole_images_get_them(tmp_path, monkeypatch):
    images, labels = scribbled(2)
    messages = []
    config = replace(STROKES, augment=hr.AugmentConfig(copies=1))
    result = jobs.train(
        jobs.TrainRequest(*write_set(tmp_path, images, labels), tmp_path / "a.hedge", config=config),
        say=messages.append,
    )
    assert file_content(result.model) == file_content(hr.fit_stack(images, labels, config))
    assert any("loading whole images: parts of images do not suffice for altered copies" in item for item in messages)
    monkeypatch.setattr(sparse_growth, "MAX_LOADED_FRACTION", 0.001)
    jobs.train(
        jobs.TrainRequest(*write_set(tmp_path, images, labels), tmp_path / "b.hedge", config=STROKES),
        say=messages.append,
    )
    assert any("most of the pixels" in item for item in messages)


def test_trees_grown_elsewhere_make_the_same_model(tmp_path, monkeypatch):
    """Tasks return in any order; `test_cluster` has real workers."""
    images, labels = scribbled(5)
    sent = []

    def side_by_side(client, work, items, *others):
        sent.append(len(items))
        return [(item, work(*pickle.loads(pickle.dumps((item, *others))))) for item in items[::-1]]

    monkeypatch.setattr(cluster, "side_by_side", side_by_side)
    client = Namespace(
        submit=lambda work, **options: Namespace(result=work),
        scatter=lambda content, **options: content,
        nthreads=lambda: {"one": 1, "two": 1},
    )
    for config in (CONTEXT, replace(CONTEXT, held_out="trees"), replace(CONTEXT, held_out="none")):
        expected = grow_stack(labelled_set(images, labels), config)
        found = grow_stack(labelled_set(images, labels), config, grow_all=cluster.trees_on(client))
        assert file_content(found) == file_content(expected)
    assert sent[:2] == [6, 6]  # three forests of four trees side by side, in two levels


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["grid", "per_class"])
def test_the_same_pixels_are_chosen(seed, kind, monkeypatch):
    rng = np.random.default_rng(seed)
    target = np.where(rng.random((40, 50)) < 0.2, rng.integers(0, 3, (40, 50)), UNLABELLED_INDEX).astype(np.uint8)
    config = SamplingConfig(kind=kind, step=2 + seed % 2, fraction=0.5, at_least=15, per_class=11)
    monkeypatch.setattr(samples, "NUMBERS_AT_ONCE", 30)  # the numbers of the grid are drawn in several goes
    targets = np.stack([target, target[::-1]])
    found = choose_pixels(targets, config, np.random.default_rng((seed, 1)))
    np.testing.assert_array_equal(found, chosen_one_by_one(targets, config, np.random.default_rng((seed, 1))))
    row, column = np.nonzero(target != UNLABELLED_INDEX)
    of_image = row * target.shape[1] + column, target[row, column], target.shape
    is_chosen = samples.chosen(*of_image, config, np.random.default_rng((seed, 1)))
    expected = choose_pixels(target[None], config, np.random.default_rng((seed, 1)))
    np.testing.assert_array_equal((row[is_chosen], column[is_chosen]), expected[1:])


def chosen_one_by_one(target, config, rng):
    """`choose_pixels` as its documentation defines it, on whole arrays."""
    chosen, values = np.zeros(target.shape, bool), np.unique(target[target != UNLABELLED_INDEX])
    wanted = dict.fromkeys(values, config.per_class)
    if config.kind == "grid":
        lattice = (slice(None), slice(None, None, config.step), slice(None, None, config.step))
        chosen[lattice] = (rng.random(target[lattice].shape) < config.fraction) & (target[lattice] != UNLABELLED_INDEX)
        wanted = {value: config.at_least - int((target[chosen] == value).sum()) for value in values}
    for value in values:
        others = np.flatnonzero((target == value) & ~chosen)
        if wanted[value] > 0:
            chosen.ravel()[rng.choice(others, min(wanted[value], len(others)), replace=False)] = True
    return np.nonzero(chosen)


def labelled_pixels(target):
    row, column = np.nonzero(target != UNLABELLED_INDEX)
    return LabelledPixels(target.shape, row, column, target[row, column])


@pytest.mark.parametrize("seed", range(8))
def test_the_same_strokes(seed):
    """Pieces are those of `ndimage.label`, numbered in the same order."""
    rng = np.random.default_rng(seed)
    noise = ndimage.uniform_filter(rng.random((60, 70)), 2)
    target = np.where(noise > 0.55, (noise * 10).astype(int) % 2, UNLABELLED_INDEX).astype(np.uint8)
    (of_pixel,) = strokes(LabelledSet([LabelledImage(target[None], target)], (0, 1)), 3, (1,))
    rng = np.random.default_rng((1, 0))
    for value in np.unique(target[target != UNLABELLED_INDEX]):
        pieces, n = ndimage.label(target == value, np.ones((3, 3)))
        order = np.argsort(-np.bincount(pieces.ravel(), minlength=n + 1)[1:], kind="stable")
        first = rng.integers(3)
        for place, piece in enumerate(order):
            assert set(of_pixel[pieces == piece + 1]) == {(first + place) % 3}


def test_parts_hold_the_samples_of_the_whole():
    images, labels = scribbled(5)
    whole = labelled_set(images, labels)
    expected = draw_samples(with_groups(whole, CONTEXT, None)[1], CONTEXT)
    result = sparse_training_set([labelled_pixels(image.target) for image in whole], "images", CONTEXT)
    np.testing.assert_array_equal(result.samples.target, expected.target)
    np.testing.assert_array_equal(result.samples.group, expected.group)
    for k in range(len(expected)):
        part = result.parts[result.samples.image[k]]
        rows, columns = result.places[part.image]
        at = part.first + result.samples.row[k] * part.target.shape[1] + result.samples.column[k]
        assert (part.image, rows[at], columns[at]) == (expected.image[k], expected.row[k], expected.column[k])
    n_labelled = sum(int((image.target != UNLABELLED_INDEX).sum()) for image in whole)
    assert sum(int((part.target != UNLABELLED_INDEX).sum()) for part in result.parts) == n_labelled
