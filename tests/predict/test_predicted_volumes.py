"""Volumes from arrays to predictions: axes, tiles, scores, model files, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError, QuestionError
from hedgerow.forest.level_input import dimensions_of, fitting_block, needed
from hedgerow.images.given import labelled_set
from hedgerow.images.regions import Region
from hedgerow.predict.protocol import note_on_voxel_size
from hedgerow.predict.tiling import predict_planes
from hedgerow.threads import set_threads
from helpers.volumes import CONFIG, labelled_volume, labelled_volumes

FORESTS = ("threshold", "left_child", "channel", "offset", "votes")


@pytest.fixture(scope="module")
def model():
    return hr.fit_stack(*labelled_volumes(), CONFIG, voxel_size=(2, 1, 1))


def assert_same_forests(first, second):
    for one, other in zip(first.levels, second.levels, strict=True):
        for name in FORESTS:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_stack_learns_from_volumes_and_predicts_them(model):
    volume, labels = labelled_volume(9)
    assert dimensions_of(model) == 3
    assert model.level_reach_z(0) == 1, "a window of 5 pixels reaches 2 pixels, one slice that is twice as far apart"
    assert model.settings["anisotropy"] == 2
    proba = model.predict_proba(volume)
    assert proba.shape == (3, *volume.shape)
    np.testing.assert_allclose(proba.sum(axis=0), 1, atol=1e-5)
    predicted = model.predict(volume)
    np.testing.assert_array_equal(predicted, proba.argmax(axis=0))
    scores = hr.evaluate(model, [volume], [labels])
    assert scores.mean_dice > 0.8
    assert scores.confusion.sum() == labels.size
    assert [output.shape for output in model.level_outputs(volume)] == [(3, *volume.shape)] * 2


@pytest.mark.parametrize("tile", [4, (1, 5, 7), (2, 14, 3)])
def test_tiles_in_three_axes_do_not_change_a_bit(model, tile):
    volume, _ = labelled_volume(9, (6, 13, 11))
    np.testing.assert_array_equal(model.predict_proba(volume, tile=tile), model.predict_proba(volume))


def test_memory_limits_the_tiles_of_a_volume(model):
    size, memory = (40, 60, 50), 5_000_000
    sides = fitting_block(model, size, memory)
    seen = needed(model, size, Region(15, 15 + sides[1], 10, 10 + sides[2], 5, 5 + sides[0]))
    assert np.prod(sides) < np.prod(size)
    assert np.prod(seen.shape) * 4 * (2 * (model.features.n_features + 3) + 6) <= memory * 1.05
    assert fitting_block(model, size, 10**9) == size
    assert min(fitting_block(model, size, 1)) >= 5
    volume, _ = labelled_volume(3, (9, 30, 28))
    tiles = list(predict_planes(model, volume[None], memory=400_000))
    assert len(tiles) > 1
    whole = model.predict_proba(volume)
    for region, outputs, _ in tiles:
        np.testing.assert_array_equal(outputs[-1], region.of_volume(whole))


@pytest.mark.parametrize("config", [{}, {"features": "channels"}, {"held_out": "trees"}, {"balance": True}])
def test_the_number_of_threads_does_not_change_the_model(config):
    made = []
    for n in (1, 2):
        set_threads(n)
        try:
            made.append(hr.fit_stack(*labelled_volumes(2), replace(CONFIG, n_levels=1, **config), axes="ZYX"))
        finally:
            set_threads(1)
    assert_same_forests(*made)


def painted(labels):
    """Two strokes of each class in one slice of labels (...,H,W), and nothing in the others."""
    strokes = np.full_like(labels, 255)
    for column in (1, 2):
        strokes[..., :6, column] = 2
        strokes[..., 5:9, column + 7] = 1
        strokes[..., 11:13, column * 6] = 0
    if strokes.ndim == 3:
        strokes[1:] = 255
    return strokes


@pytest.mark.parametrize("label", [lambda labels: labels, painted], ids=["full", "strokes"])
@pytest.mark.parametrize("n", [1, 4])
def test_a_volume_of_one_slice_is_an_image(n, label):
    """With features in the plane, forests and probabilities are the same bits."""
    volumes, labels = labelled_volumes(n, (1, 14, 16))
    of_volumes = hr.fit_stack(volumes, [label(own) for own in labels], replace(CONFIG, dimensions=2), axes="ZYX")
    of_images = hr.fit_stack([volume[0] for volume in volumes], [label(own[0]) for own in labels], CONFIG)
    assert_same_forests(of_volumes, of_images)
    volume, _ = labelled_volume(9, (1, 20, 18))
    expected = of_images.predict_proba(volume[0])
    np.testing.assert_array_equal(of_volumes.predict_proba(volume, axes="ZYX")[:, 0], expected)
    np.testing.assert_array_equal(of_volumes.predict_proba(volume[0]), expected)


def test_a_volume_in_the_plane_is_predicted_slice_by_slice():
    model = hr.fit_stack(*labelled_volumes(), replace(CONFIG, dimensions=2), axes="ZYX")
    assert dimensions_of(model) == 2
    assert not any(forest.reach_z for forest in model.levels)
    volume, labels = labelled_volume(9)
    whole = model.predict_proba(volume)
    for z, plane in enumerate(volume):
        np.testing.assert_array_equal(whole[:, z], model.predict_proba(plane))
    np.testing.assert_array_equal(model.predict_proba(volume, tile=6), whole)
    assert hr.evaluate(model, [volume], [labels]).mean_dice > 0.8


def test_a_model_of_images_predicts_a_volume_slice_by_slice_and_prints_it(capsys, caplog):
    volumes, labels = labelled_volumes(1)
    model = hr.fit_stack(list(volumes[0]), list(labels[0]), replace(CONFIG, n_levels=1))
    with caplog.at_level("INFO", logger="hedgerow"):
        predicted = model.predict(volumes[0])
    assert "each slice of the volume is predicted on its own" in caplog.text
    np.testing.assert_array_equal(predicted, [model.predict(plane) for plane in volumes[0]])


def test_a_model_of_volumes_refuses_a_single_plane(model):
    volume, labels = labelled_volume(9)
    for image, axes in ((volume[0], None), (volume[0], "YX"), (volume, "TYX")):
        with pytest.raises(InputError, match=r"learned from volumes.*cannot predict an image.*give a volume"):
            model.predict(image, axes=axes)
    with pytest.raises(InputError, match="is an image, but the model learned from volumes; give volumes"):
        hr.evaluate(model, [volume[0]], [labels[0]])


@pytest.mark.parametrize(
    ("axes", "arranged"),
    [
        ("ZYX", lambda a: a),
        ("ZYXC", lambda a: a[..., None]),
        ("CZYX", lambda a: a[None]),
        ("YZX", lambda a: a.swapaxes(0, 1)),
        ("zyx", lambda a: a),
    ],
)
def test_axes_name_the_same_volume_in_any_order(model, axes, arranged):
    volumes, labels = labelled_volumes()
    label_axes = [axes.upper().replace("C", "").index(letter) for letter in "ZYX"]
    turned = [target.transpose(np.argsort(label_axes)) for target in labels]
    again = hr.fit_stack([arranged(volume) for volume in volumes], turned, CONFIG, axes=axes, voxel_size=(2, 1, 1))
    assert_same_forests(again, model)
    volume, _ = labelled_volume(9)
    np.testing.assert_array_equal(again.predict(arranged(volume), axes=axes), model.predict(volume))


def test_labels_of_three_axes_make_volumes_of_images_without_axes():
    volumes, labels = labelled_volumes(2)
    config = replace(CONFIG, n_levels=1)
    named = hr.fit_stack(volumes, labels, config, axes="ZYX")
    assert_same_forests(hr.fit_stack(volumes, labels, config), named)
    two = [np.stack([volume, volume**2]) for volume in volumes]  # two channels
    first = hr.fit_stack(two, labels, config)
    last = hr.fit_stack([np.moveaxis(volume, 0, -1) for volume in two], labels, config)
    assert_same_forests(first, last)
    np.testing.assert_array_equal(first.predict(two[0]), first.predict(np.moveaxis(two[0], 0, -1)))


def test_one_volume_comes_without_a_list():
    volumes, labels = labelled_volumes(1)
    config = replace(CONFIG, n_levels=1)
    alone = hr.fit_stack(volumes[0], labels[0], config, axes="ZYX")
    assert_same_forests(alone, hr.fit_stack(volumes, labels, config, axes="ZYX"))


def test_an_ambiguous_array_is_refused_with_both_readings():
    volumes, labels = labelled_volumes(1)
    with pytest.raises(InputError, match=r'may be a volume or 5 images; say which with axes="ZYX" or axes="TYX"'):
        hr.fit_stack(volumes[0], labels[0], CONFIG)
    cube = np.zeros((4, 4, 4, 4), np.float32)
    with pytest.raises(InputError, match=r'last axis are channels or .*first axis .*axes="ZYXC" or axes="CZYX"'):
        hr.fit_stack([cube], [cube[0].astype(np.uint8)], CONFIG)
    volumes, labels = labelled_volumes(1)
    model = hr.fit_stack([np.stack(volumes * 2)], labels, replace(CONFIG, n_levels=1), axes="CZYX")
    with pytest.raises(InputError, match=r'say which with axes="ZYXC" or axes="CZYX"'):
        model.predict(np.zeros((2, 9, 8, 2), np.float32))


def test_a_series_in_time_is_a_series_of_images():
    volumes, labels = labelled_volumes(2)
    config = replace(CONFIG, n_levels=1)
    series = hr.fit_stack(volumes, labels, config, axes="TYX", groups="none")
    planes, maps = [plane for volume in volumes for plane in volume], [plane for target in labels for plane in target]
    assert_same_forests(series, hr.fit_stack(planes, maps, config, groups="none"))
    predicted = series.predict(volumes[0], axes="TYX")
    np.testing.assert_array_equal(predicted, [series.predict(plane) for plane in volumes[0]])
    assert series.predict_proba(volumes[0], axes="TYX").shape == (5, 3, 14, 16)
    score = hr.evaluate(series, volumes, labels, axes="TYX")
    np.testing.assert_array_equal(score.confusion, hr.evaluate(series, planes, maps).confusion)


def test_a_series_of_volumes_is_predicted_volume_by_volume(model):
    series = np.stack(labelled_volumes(2)[0])
    predicted = model.predict(series, axes="TZYX")
    np.testing.assert_array_equal(predicted, [model.predict(volume) for volume in series])


@pytest.mark.parametrize("axes", ["ZX", "ZZYX", "QYX", 3, ""])
def test_impossible_axes_are_refused(model, axes):
    with pytest.raises(ConfigError, match="expected Y and X and any of T"):
        model.predict(labelled_volume(0)[0], axes=axes)
    with pytest.raises(ConfigError, match="expected Y and X and any of T"):
        hr.fit_stack(*labelled_volumes(1), CONFIG, axes=axes)


@pytest.mark.parametrize("size", [(1, 1), (0, 1, 1), "big", (1, float("nan"), 1), 3])
def test_an_impossible_voxel_size_is_refused(size):
    with pytest.raises(ConfigError, match="give three lengths above 0"):
        hr.fit_stack(*labelled_volumes(1), CONFIG, axes="ZYX", voxel_size=size)


def test_volumes_without_a_voxel_size_are_taken_as_isotropic_with_a_note(caplog):
    with caplog.at_level("INFO", logger="hedgerow"):
        model = hr.fit_stack(*labelled_volumes(1), replace(CONFIG, n_levels=1), axes="ZYX")
    assert "the voxel size of the volumes is unknown" in caplog.text
    assert model.settings["anisotropy"] == 1
    assert model.levels[0].reach_z == 2


def test_images_and_volumes_are_not_mixed():
    volumes, labels = labelled_volumes(2)
    with pytest.raises(InputError, match="give either images or volumes"):
        hr.fit_stack([volumes[0], volumes[1][0]], [labels[0], labels[1][0]], CONFIG)


def test_slices_without_labels_are_refused_in_words():
    volumes, labels = labelled_volumes(1)
    with pytest.raises(InputError, match="the volume has 5 slices and its labels 3"):
        hr.fit_stack(volumes, [labels[0][:3]], CONFIG, axes="ZYX")


def test_0_is_a_class_where_labels_go_on_in_the_next_slice():
    """Few voxels of whole objects look like paint in a single slice, but nobody paints strokes in all slices."""
    volume, labels = np.zeros((9, 40, 40), np.float32), np.zeros((9, 40, 40), np.uint8)
    labels[2:7, 10:14, 5:20], labels[2:7, 25:29, 5:20] = 1, 2
    given = labelled_set([volume], [labels], unlabelled=None)
    assert (given.classes, given.unlabelled) == ((0, 1, 2), 255)
    labels[:4] = labels[5:] = 0
    with pytest.raises(QuestionError, match="was nothing painted there"):
        labelled_set([volume], [labels], unlabelled=None)


def test_painted_slices_suffice():
    """Strokes on single slices train; other slices are unlabelled."""
    volumes, labels = labelled_volumes(1, (5, 20, 22))
    strokes = np.full_like(labels[0], 255)
    strokes[1, 3:17, ::4], strokes[3, ::5] = labels[0][1, 3:17, ::4], labels[0][3, ::5]
    model = hr.fit_stack(volumes, [strokes], CONFIG, axes="ZYX")
    assert model.settings["held"] in ("blocks", "strokes")
    volume, truth = labelled_volume(5, (5, 20, 22))
    assert hr.evaluate(model, [volume], [truth]).mean_dice > 0.7


@pytest.mark.parametrize("features", ["bank", "channels", ("bank", "channels")])
def test_a_model_file_keeps_the_dimensions(tmp_path, features):
    volumes, labels = labelled_volumes(2)
    axes = "CZYX" if "channels" in features else "ZYX"
    given = [volume[None] for volume in volumes] if axes == "CZYX" else volumes
    model = hr.fit_stack(given, labels, replace(CONFIG, features=features), axes=axes, voxel_size=(3, 1, 1))
    hr.save(model, tmp_path / "volumes.hedge")
    loaded = hr.load(tmp_path / "volumes.hedge")
    assert dimensions_of(loaded) == 3
    assert loaded.settings["anisotropy"] == 3
    np.testing.assert_array_equal(loaded.predict_proba(given[0]), model.predict_proba(given[0]))


def test_settings_of_images_are_stored_as_before():
    volumes, labels = labelled_volumes(1)
    model = hr.fit_stack(list(volumes[0]), list(labels[0]), replace(CONFIG, n_levels=1))
    assert "dimensions" not in model.settings["config"]
    assert model.settings["config"]["context"]["window_z"] == 1
    assert "anisotropy" not in model.settings
    for window_z in (None, 1, 3):
        for dimensions in ("auto", 2, 3):
            config = replace(CONFIG, dimensions=dimensions, context=replace(CONFIG.context, window_z=window_z))
            assert hr.StackConfig.from_dict(config.to_dict()) == config


def test_what_needs_images_is_refused():
    volumes, labels = labelled_volumes(1)
    with pytest.raises(InputError, match="depth features are for images, and these are volumes"):
        hr.fit_stack(volumes, labels, replace(CONFIG, features="depth"), axes="ZYX")
    with pytest.raises(InputError, match="numbered objects in volumes cannot be learned yet"):
        hr.fit(volumes, labels, config=CONFIG, axes="ZYX", label_kind="objects")
    with pytest.raises(InputError, match="dimensions=3 is for volumes, and these are images"):
        hr.fit_stack(list(volumes[0]), list(labels[0]), replace(CONFIG, dimensions=3))
    with pytest.raises(InputError, match="voxel_size is for volumes"):
        hr.fit_stack(list(volumes[0]), list(labels[0]), CONFIG, voxel_size=(1, 1, 1))


def test_effort_best_is_refused():
    pytest.importorskip("torch")
    volumes, labels = labelled_volumes(1)
    with pytest.raises(ConfigError, match=r"effort best .*images only; volumes take effort good"):
        hr.fit(volumes, labels, "best", CONFIG, axes="ZYX")


def test_fit_chooses_settings_for_volumes():
    volumes, labels = labelled_volumes(2, (3, 10, 12))
    model = hr.fit(volumes, labels, axes="ZYX", voxel_size=(2, 1, 1))
    assert dimensions_of(model) == 3
    assert model.settings["config"]["dimensions"] == 3
    assert model.predict(volumes[0]).shape == volumes[0].shape


def test_altered_copies_of_a_volume_turn_all_slices_alike():
    volumes, labels = labelled_volumes(1, (1, 14, 16))
    augment = hr.AugmentConfig(copies=1, flip=True, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2)
    config = replace(CONFIG, n_levels=1, dimensions=2, augment=augment)
    image = hr.fit_stack([volumes[0][0]], [labels[0][0]], replace(config, dimensions="auto"))
    assert_same_forests(hr.fit_stack(volumes, labels, config, axes="ZYX"), image)
    thick, thick_labels = (np.repeat(array, 3, axis=0) for array in (volumes[0], labels[0]))
    model = hr.fit_stack([thick], [thick_labels], replace(config, dimensions=3), axes="ZYX")
    assert model.predict(thick).shape == thick.shape


def test_objects_of_a_volume_are_found(model):
    numbers = model.predict_objects(labelled_volume(9)[0], classes=["1"])
    assert numbers.shape == (5, 14, 16)
    assert numbers.max() >= 1


def test_what_is_for_models_of_images_is_refused(model, tmp_path):
    for package in ("torch", "jinja2", "matplotlib"):
        pytest.importorskip(package)
    volume, labels = labelled_volume(9)
    hr.save(model, tmp_path / "volumes.hedge")
    np.save(tmp_path / "plane.npy", volume[0])
    works = [
        lambda: hr.look(model, volume),
        lambda: hr.write_report(tmp_path / "report.html", {"volumes": model}, [volume], [labels], title="Volumes"),
        lambda: hr.predict_large(tmp_path / "volumes.hedge", tmp_path / "plane.npy", tmp_path / "out.npy"),
        lambda: hr.deepen(hr.to_convnet(model), [volume], [labels]),
    ]
    for work in works:
        with pytest.raises(InputError, match="is for models of images, and this one learned from volumes"):
            work()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plane.npy", "volumes.hedge"]


def test_another_distance_of_slices_is_noted(model):
    assert note_on_voxel_size(model, 2.05, "a.tif") == ""
    note = note_on_voxel_size(model, 4.0, "a.tif")
    assert "the slices of a.tif are 4 pixels apart" in note
    assert "where they are 2" in note
    volumes, labels = labelled_volumes(1)
    flat = hr.fit_stack(list(volumes[0]), list(labels[0]), replace(CONFIG, n_levels=1))
    assert note_on_voxel_size(flat, 4.0, "a.tif") == ""
