"""Volumes and series on the command line: train, predict, evaluate and info with files that have z planes or time."""

import csv

import numpy as np
import pytest
import tifffile

import hedgerow as hr
from hedgerow.images.reading import open_image, read_voxel_size
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import write_labels
from helpers.files import listing, write
from helpers.refusals import assert_refused
from helpers.volumes import CONFIG, labelled_volumes

SIZE = VoxelSize(0.5, 0.5, 1.0)


def write_stack(path, volume, size=SIZE, axes="ZYX"):
    metadata = {"axes": axes, "unit": "micron", "spacing": size.depth}
    resolution = (1 / size.width, 1 / size.height)
    tifffile.imwrite(path, volume.astype(np.float32), imagej=True, resolution=resolution, metadata=metadata)
    return path


def read_stack(path):
    """(axes, array) of a result."""
    with open_image(path, volumes=True) as source:
        frames = [frame.array() for frame in source.each_frame()]
        axes = "T" * bool(source.frames) + "ZYX"[-len(source.size) :]
        return axes, np.array(frames) if source.frames else frames[0]


def read_table(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Volumes with labels, and settings for a small model."""
    folder = tmp_path_factory.mktemp("volumes")
    for name in ("stacks", "painted"):
        (folder / name).mkdir()
    for i, (volume, labels) in enumerate(zip(*labelled_volumes(3), strict=True)):
        labels = labels.copy()
        labels[0] = 255  # a plane that nobody painted
        write_stack(folder / "stacks" / f"v{i}.tif", volume)
        write_labels(folder / "painted" / f"v{i}.tif", labels, axes="ZYX")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    """A model of volumes, trained by the library on the same arrays."""
    model = hr.fit_stack(str(folder / "stacks"), str(folder / "painted"), CONFIG)
    hr.save(model, folder / "model.hedge")
    return model


OPTIONS = ["--levels", "2", "--trees", "3", "--tune", "off", "--features", "bank"]


def test_train_on_stacks(hedgerow, folder, tmp_path):
    finished = hedgerow("train", folder / "stacks", folder / "painted", "-o", tmp_path / "m.hedge", *OPTIONS)
    assert finished.code == 0, finished.err
    assert "3 volume(s): 5 x 14 x 16 float32" in finished.out
    assert "a volume of 5 z planes, voxels of 1 x 0.5 x 0.5 micrometres" in finished.out
    model = hr.load(tmp_path / "m.hedge")
    assert model.settings["anisotropy"] == 2
    described = hedgerow("info", tmp_path / "m.hedge").out
    assert "trained on 3 volume(s)" in described
    assert "reads volumes whose z planes are 2 pixels apart" in described


def test_files_and_arrays_give_the_same_model(folder, model):
    volumes, labels = labelled_volumes(3)
    for one in labels:
        one[0] = 255
    same = hr.fit_stack(volumes, labels, CONFIG, voxel_size=(1, 0.5, 0.5))
    np.testing.assert_array_equal(same.predict_proba(volumes[0]), model.predict_proba(volumes[0]))


def test_a_given_voxel_size_replaces_that_of_the_files(hedgerow, folder, tmp_path):
    finished = hedgerow(
        "train", folder / "stacks", folder / "painted", "-o", tmp_path / "m.hedge", "--voxel-size", "3,1,1", *OPTIONS
    )
    assert finished.code == 0, finished.err
    assert hr.load(tmp_path / "m.hedge").settings["anisotropy"] == 3


def test_volumes_of_different_anisotropy_are_refused(hedgerow, folder, tmp_path):
    volumes, labels = labelled_volumes(2)
    for i, depth in enumerate((1.0, 2.0)):
        (tmp_path / "painted").mkdir(exist_ok=True)
        (tmp_path / "stacks").mkdir(exist_ok=True)
        write_stack(tmp_path / "stacks" / f"v{i}.tif", volumes[i], VoxelSize(0.5, 0.5, depth))
        write_labels(tmp_path / "painted" / f"v{i}.tif", labels[i], axes="ZYX")
    finished = hedgerow("train", tmp_path / "stacks", tmp_path / "painted", "-o", tmp_path / "m.hedge", *OPTIONS)
    assert_refused(finished, "v0.tif", "2 pixels apart", "v1.tif", "4", "--voxel-size")


def test_arrays_need_axes_only_where_they_are_ambiguous(hedgerow, folder, tmp_path):
    volumes, labels = labelled_volumes(2)
    for i in range(2):
        write(tmp_path / "a" / f"v{i}.npy", volumes[i])
        write(tmp_path / "b" / f"v{i}.npy", labels[i])
        write(tmp_path / "c" / f"v{i}.npy", np.stack([volumes[i]] * 2, axis=-1))
    finished = hedgerow("train", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "m.hedge", *OPTIONS)
    assert finished.code == 0, finished.err
    assert "2 volume(s)" in finished.out
    assert "do not say how far apart their z planes are" in finished.out
    finished = hedgerow("train", tmp_path / "c", tmp_path / "b", "-o", tmp_path / "n.hedge", *OPTIONS)
    assert_refused(finished, "--axes")
    finished = hedgerow("train", tmp_path / "c", tmp_path / "b", "-o", tmp_path / "n.hedge", "--axes", "ZYXC", *OPTIONS)
    assert finished.code == 0, finished.err
    assert hr.load(tmp_path / "n.hedge").features.n_inputs == 2
    finished = hedgerow(
        "predict", tmp_path / "n.hedge", tmp_path / "c" / "v0.npy", "-o", tmp_path / "o", "--axes", "ZYXC"
    )
    assert finished.code == 0, finished.err
    # A model of volumes with one channel takes three axes for z, y and x.
    finished = hedgerow("predict", tmp_path / "m.hedge", tmp_path / "a", "-o", tmp_path / "p")
    assert finished.code == 0, finished.err
    expected = hr.load(tmp_path / "m.hedge").predict(volumes[1])
    np.testing.assert_array_equal(read_stack(tmp_path / "p" / "v1.tif")[1], expected)


@pytest.mark.parametrize("axes", ["ZZ", "XY2"])
def test_impossible_axes_are_refused(hedgerow, folder, model, tmp_path, axes):
    for command in ("train", "predict", "evaluate"):
        places = [folder / "stacks", *([] if command == "predict" else [folder / "painted"])]
        own = [] if command == "train" else [folder / "model.hedge"]
        output = (
            [] if command == "evaluate" else ["-o", tmp_path / "out.hedge" if command == "train" else tmp_path / "o"]
        )
        assert_refused(hedgerow(command, *own, *places, *output, "--axes", axes), "the axes (--axes) are")


def test_predict_stacks(hedgerow, folder, model, tmp_path):
    finished = hedgerow(
        "predict", folder / "model.hedge", folder / "stacks", "-o", tmp_path, "--proba", "--confidence", "--entropy"
    )
    assert finished.code == 0, finished.err
    volume = labelled_volumes(3)[0][2]
    axes, labels = read_stack(tmp_path / "v2.tif")
    assert axes == "ZYX"
    np.testing.assert_array_equal(labels, model.predict(volume))
    assert read_voxel_size(tmp_path / "v2.tif").anisotropy == pytest.approx(2)
    proba = model.predict_proba(volume)
    np.testing.assert_array_equal(np.moveaxis(read_stack(tmp_path / "v2_proba.tif")[1], -1, 0), proba)
    np.testing.assert_array_equal(read_stack(tmp_path / "v2_confidence.tif")[1], proba.max(axis=0))
    assert read_stack(tmp_path / "v2_entropy.tif")[1].shape == volume.shape


@pytest.mark.parametrize("format", ["ome.tif", "npy", "zarr", "nii.gz"])
def test_formats_of_stacks(hedgerow, folder, model, tmp_path, format):
    if format == "nii.gz":
        pytest.importorskip("nibabel")
    finished = hedgerow(
        "predict", folder / "model.hedge", folder / "stacks" / "v0.tif", "-o", tmp_path, "--format", format
    )
    assert finished.code == 0, finished.err
    path = tmp_path / f"v0.{format}"
    labels = np.load(path) if format == "npy" else read_stack(path)[1]
    np.testing.assert_array_equal(labels, model.predict(labelled_volumes(3)[0][0]))


def test_png_and_overlays_are_refused_for_stacks(hedgerow, folder, model, tmp_path):
    for options, words in ((["--format", "png"], "PNG holds one plane"), (["--overlay"], "--overlay is for images")):
        finished = hedgerow("predict", folder / "model.hedge", folder / "stacks", "-o", tmp_path / "o", *options)
        assert finished.code == 2
        assert words in finished.err
        assert not listing(tmp_path / "o")


def test_one_stack_into_one_store(hedgerow, folder, model, tmp_path):
    finished = hedgerow(
        "predict", folder / "model.hedge", folder / "stacks" / "v0.tif", "-o", tmp_path / "out.ome.zarr", "--proba"
    )
    assert finished.code == 0, finished.err
    volume = labelled_volumes(3)[0][0]
    np.testing.assert_array_equal(read_stack(tmp_path / "out.ome.zarr")[1], model.predict(volume))
    np.testing.assert_array_equal(
        np.moveaxis(read_stack(tmp_path / "out_proba.ome.zarr")[1], -1, 0), model.predict_proba(volume)
    )
    finished = hedgerow(
        "predict",
        folder / "model.hedge",
        folder / "stacks" / "v0.tif",
        "-o",
        tmp_path / "o.zarr",
        "--region",
        "0:5,0:5",
    )
    assert_refused(finished, "--region is for images")


def test_results_for_a_nifti_lie_on_it(hedgerow, folder, model, tmp_path):
    nibabel = pytest.importorskip("nibabel")
    volume = labelled_volumes(3)[0][0]
    affine = np.array([[-0.5, 0, 0, 9], [0, 0.5, 0, 8], [0, 0, 1, 7], [0, 0, 0, 1.0]])
    nibabel.save(nibabel.Nifti1Image(volume.T, affine), tmp_path / "a.nii.gz")
    finished = hedgerow("predict", folder / "model.hedge", tmp_path / "a.nii.gz", "-o", tmp_path / "out", "--proba")
    assert finished.code == 0, finished.err
    result = nibabel.load(tmp_path / "out" / "a.nii.gz")
    np.testing.assert_array_equal(result.affine, affine)
    np.testing.assert_array_equal(np.asarray(result.dataobj).T, model.predict(volume))
    proba = nibabel.load(tmp_path / "out" / "a_proba.nii.gz")
    assert proba.shape == (16, 14, 5, 1, 3)


def test_a_model_of_volumes_refuses_planes(hedgerow, folder, model, tmp_path):
    write(tmp_path / "a.png", np.zeros((20, 20), np.uint8))
    finished = hedgerow("predict", folder / "model.hedge", tmp_path / "a.png", "-o", tmp_path / "out")
    assert finished.code == 2
    assert "is a single plane, but the model learned from volumes" in finished.err


def test_a_stack_with_other_distances_gets_a_note(hedgerow, folder, model, tmp_path):
    write_stack(tmp_path / "a.tif", labelled_volumes(1)[0][0], VoxelSize(0.5, 0.5, 3.0))
    finished = hedgerow("predict", folder / "model.hedge", tmp_path / "a.tif", "-o", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert "z planes are 6 pixels apart, but the model learned from planes that are 2 apart" in finished.out


def test_a_model_of_images_predicts_stacks_plane_by_plane(hedgerow, tmp_path, place, model_file, stack, example):
    volume = np.stack([example.images[0], example.images[1], example.images[0]])
    write_labels(tmp_path / "s.tif", volume, axes="ZYX")
    finished = hedgerow("predict", model_file, tmp_path / "s.tif", "-o", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert "the model learned from images" in finished.out
    assert "plane by plane" in finished.out
    axes, labels = read_stack(tmp_path / "out" / "s.tif")
    assert axes == "ZYX"
    np.testing.assert_array_equal(labels, [stack.predict(plane) for plane in volume])


def test_a_series_is_predicted_image_by_image_into_one_file(hedgerow, tmp_path, model_file, stack, example):
    series = np.stack([example.images[0], example.images[1]])
    write_labels(tmp_path / "s.tif", series, axes="TYX")
    finished = hedgerow("predict", model_file, tmp_path / "s.tif", "-o", tmp_path / "out", "--proba", "--measure")
    assert finished.code == 0, finished.err
    assert "2 time points, read as separate images" in finished.out
    axes, labels = read_stack(tmp_path / "out" / "s.tif")
    assert axes == "TYX"
    np.testing.assert_array_equal(labels, [stack.predict(image) for image in series])
    proba = read_stack(tmp_path / "out" / "s_proba.tif")[1]
    np.testing.assert_array_equal(np.moveaxis(proba, -1, 1), [stack.predict_proba(image) for image in series])
    rows = read_table(tmp_path / "out" / "objects.csv")
    assert {row["image"] for row in rows} == {"s.tif, time 0", "s.tif, time 1"}


def test_train_and_evaluate_on_a_series(hedgerow, tmp_path, model_file, stack, example):
    (tmp_path / "i").mkdir()
    (tmp_path / "l").mkdir()
    write_labels(tmp_path / "i" / "s.tif", np.stack(example.images), axes="TYX")
    write_labels(tmp_path / "l" / "s.tif", np.stack(example.labels), axes="TYX")
    finished = hedgerow("train", tmp_path / "i", tmp_path / "l", "-o", tmp_path / "m.hedge", *OPTIONS)
    assert finished.code == 0, finished.err
    assert hr.load(tmp_path / "m.hedge").settings["n_images"] == 2
    finished = hedgerow("evaluate", model_file, tmp_path / "i", tmp_path / "l", "--csv", tmp_path / "t.csv")
    assert finished.code == 0, finished.err
    scores = hr.evaluate(stack, list(example.images), list(example.labels))
    assert f"{scores.mean_dice:.4f}" in finished.out
    rows = read_table(tmp_path / "t.csv")
    assert [row["image"] for row in rows] == ["s.tif, time 0", "s.tif, time 1"]


def test_evaluate_volumes(hedgerow, folder, model):
    finished = hedgerow("evaluate", folder / "model.hedge", folder / "stacks", folder / "painted")
    assert finished.code == 0, finished.err
    volumes, labels = labelled_volumes(3)
    for one in labels:
        one[0] = 255
    scores = hr.evaluate(model, volumes, labels)
    assert f"{scores.mean_dice:.4f}" in finished.out
    assert "trained on 3 of these images" in finished.out


def test_a_network_of_volumes_from_files(hedgerow, folder, model, tmp_path):
    pytest.importorskip("torch")
    net, forests = tmp_path / "n.hedge", tmp_path / "b.hedge"
    finished = hedgerow(
        "refine", folder / "model.hedge", folder / "stacks", folder / "painted", "-o", net, "--steps", "2"
    )
    assert finished.code == 0, finished.err
    assert "a volume of 5 z planes" in finished.out
    finished = hedgerow("back", net, folder / "stacks", "-o", forests)
    assert finished.code == 0, finished.err
    assert "trained on 3 volume(s)" in hedgerow("info", net).out
    for path in (net, forests):
        finished = hedgerow("evaluate", path, folder / "stacks", folder / "painted")
        assert finished.code == 0, finished.err


def test_planes_with_labels_that_are_no_stack_stay_images(hedgerow, folder, tmp_path):
    write(tmp_path / "painted" / "v0.png", labelled_volumes(1)[1][0][2])
    finished = hedgerow(
        "train", folder / "stacks" / "v0.tif", tmp_path / "painted", "-o", tmp_path / "m.hedge", *OPTIONS
    )
    assert_refused(finished, "found a stack of 5 z planes", "--pages")
    finished = hedgerow(
        "train",
        folder / "stacks" / "v0.tif",
        tmp_path / "painted",
        "-o",
        tmp_path / "m.hedge",
        "--pages",
        "3",
        *OPTIONS,
    )
    assert finished.code == 0, finished.err


def test_objects_of_volumes_are_measured(hedgerow, folder, model, tmp_path):
    for options in (["--measure"], ["--objects", "1", "--measure", "--diameter", "6"]):
        out = tmp_path / str(len(options))
        finished = hedgerow("predict", folder / "model.hedge", folder / "stacks" / "v0.tif", "-o", out, *options)
        assert finished.code == 0, finished.err
        rows = read_table(out / "objects_3d.csv")
        ball = max((row for row in rows if row["class"] == "1"), key=lambda row: int(row["volume_voxels"]))
        assert float(ball["volume_um3"]) == pytest.approx(int(ball["volume_voxels"]) * 0.25)
        assert 1 < float(ball["centroid_z_um"]) < 3
        assert float(ball["surface_um2"]) > 0
    axes, numbers = read_stack(out / "v0_objects.tif")
    assert axes == "ZYX"
    assert numbers.max() >= 1


def test_objects_of_volumes_are_scored(hedgerow, folder, model, tmp_path):
    for i, labels in enumerate(labelled_volumes(3)[1]):
        (tmp_path / "objects").mkdir(exist_ok=True)
        write_labels(tmp_path / "objects" / f"v{i}.tif", (labels == 1).astype(np.uint8), axes="ZYX")
    finished = hedgerow(
        "evaluate", folder / "model.hedge", folder / "stacks", tmp_path / "objects", "--objects", "1", "--diameter", "6"
    )
    assert finished.code == 0, finished.err
    assert "3 true objects" in finished.out


def test_the_page_refuses_stacks_without_naming_options_that_it_lacks(hedgerow, folder, tmp_path):
    pytest.importorskip("starlette")
    finished = hedgerow("paint", folder / "stacks", "--project", tmp_path / "project", "--no-browser")
    assert_refused(finished, "is a stack of 5 planes, and the page shows single planes")
    assert "--pages" not in finished.err


@pytest.mark.parametrize("command", ["look", "report", "export"])
def test_what_models_of_volumes_cannot_have_yet(hedgerow, folder, model, tmp_path, command):
    arguments = {
        "look": [folder / "model.hedge", folder / "stacks" / "v0.tif", "-o", tmp_path / "a.png"],
        "report": [folder / "model.hedge", folder / "stacks", folder / "painted", "-o", tmp_path / "a.html"],
        "export": [folder / "model.hedge", "--to", "c", "-o", tmp_path / "a.c"],
    }[command]
    assert_refused(hedgerow(command, *arguments), f"{folder / 'model.hedge'} is a model of volumes", "predict")
