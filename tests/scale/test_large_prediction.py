"""Predictions of large images: the same bits as in memory for any shards and tiles; types, pyramids and files."""

from dataclasses import replace

import numpy as np
import pytest
import tifffile
import zarr

import hedgerow as hr
from hedgerow.errors import ConfigError, InputError
from hedgerow.images.regions import Region
from hedgerow.images.writing import scaled
from hedgerow.predict.protocol import relative_entropy
from hedgerow.scale import shard_prediction, shards
from hedgerow.scale.shards import ShardGrid, cut, grid_for
from helpers.files import write
from helpers.large import levels_of, picture, write_ome_zarr, write_zarr

ALL = ("labels", "proba", "confidence", "entropy")


@pytest.fixture
def image():
    return picture()


@pytest.fixture
def there(tmp_path, image, monkeypatch):
    """A folder to work in, with the image as image.zarr."""
    monkeypatch.chdir(tmp_path)
    return write_zarr("image.zarr", image)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "uint16"])
def test_all_results_in_one_pass(there, stack, image, dtype):
    result = hr.predict_large(stack, there, "a.ome.zarr", what=ALL, dtype=dtype, shard=64, tile=40)
    assert result.results == {"labels": "a.ome.zarr"} | {what: f"a_{what}.ome.zarr" for what in ALL[1:]}
    proba = stack.predict_proba(image)
    expected = {"proba": proba, "confidence": proba.max(axis=0), "entropy": relative_entropy(proba)}
    np.testing.assert_array_equal(levels_of("a.ome.zarr")[0], stack.predict(image))
    for what, values in expected.items():
        (only,) = levels_of(result.results[what])
        np.testing.assert_array_equal(only, scaled(values, dtype))
        assert only.dtype == dtype


def test_any_set_of_results(there, stack, image, tmp_path):
    found = hr.predict_large(stack, there, "a.zarr", what=["confidence"], dtype="uint8")
    assert found.results == {"confidence": "a_confidence.zarr"}
    assert not (tmp_path / "a.zarr").exists()
    with pytest.raises(InputError, match="choose from labels, proba, confidence, entropy"):
        hr.predict_large(stack, there, "b.zarr", what=["depth"])


@pytest.mark.parametrize("options", [{"tile": 19}, {"tile": 64, "shard": 48}, {"memory": 1}, {"shard": 512}])
def test_cuts_do_not_change_the_prediction(there, stack, image, options):
    hr.predict_large(stack, there, "a.ome.zarr", what=["proba"], **options)
    np.testing.assert_array_equal(levels_of("a_proba.ome.zarr")[0], stack.predict_proba(image))


def test_every_kind_of_feature(tmp_path, grown):
    model, image = grown
    path = write(tmp_path / "a.npy", image)
    hr.predict_large(model, path, tmp_path / "b.zarr", what=["proba"], shard=16, tile=9)
    np.testing.assert_array_equal(levels_of(tmp_path / "b_proba.zarr")[0], model.predict_proba(image))


def test_an_image_is_normalised_as_a_whole(there, example, tiny_config, image):
    config = replace(tiny_config, normalise=True)
    model = hr.fit_stack(example.images, example.labels, config)
    hr.save(model, "model.hedge")
    options = {"shard": 64, "tile": 40, "region": "30:150,20:90"}
    hr.predict_large("model.hedge", there, "a.zarr", what=["proba"], **options)
    np.testing.assert_array_equal(levels_of("a_proba.zarr")[0], model.predict_proba(image)[:, 30:150, 20:90])
    brighter = model.predict(image.astype(np.float32) * 2 + 9)
    assert (brighter != model.predict(image)).mean() < 0.001


def test_a_network(there, net, image):
    hr.predict_large(net, there, "a.zarr", what=["proba"], shard=64, tile=33)
    np.testing.assert_array_equal(levels_of("a_proba.zarr")[0], net.predict_proba(image))


@pytest.mark.slow
def test_a_convolutional_level(tmp_path):
    pytest.importorskip("torch")
    from helpers.deep import pictures, small_deep

    deep = small_deep(*pictures())
    (image,), _ = pictures(1, (530, 560), seed=3)
    path = write(tmp_path / "a.npy", image)
    for region, options in (("0:530,0:560", {}), ("20:530,500:540", {"tile": 100})):
        out = tmp_path / "b.zarr"
        hr.predict_large(deep, path, out, what=["proba"], region=region, overwrite=True, **options)
        rows, columns = (slice(*map(int, part.split(":"))) for part in region.split(","))
        np.testing.assert_array_equal(
            levels_of(tmp_path / "b_proba.zarr")[0], deep.predict_proba(image)[:, rows, columns]
        )


def test_a_pyramid_by_nearest_neighbours(tmp_path, stack):
    image = picture((1300, 700))
    path = write_ome_zarr(tmp_path / "image.ome.zarr", [image])
    hr.predict_large(stack, path, tmp_path / "a.ome.zarr", shard=512)
    levels = levels_of(tmp_path / "a.ome.zarr")
    assert [item.shape for item in levels] == [(1300, 700), (650, 350)]
    np.testing.assert_array_equal(levels[1], levels[0][::2, ::2])
    group = zarr.open_group(tmp_path / "a.ome.zarr")
    said = group.attrs["ome"]["multiscales"][0]
    assert [item["coordinateTransformations"][0]["scale"] for item in said["datasets"]] == [[0.5, 0.5], [1.0, 1.0]]
    assert [axis["unit"] for axis in said["axes"]] == ["micrometer"] * 2
    assert (group["0"].chunks, group["0"].shards) == ((512, 512), (512, 512))


def test_sizes_of_shards():
    assert grid_for((100_000, 100_000), 1) == ShardGrid((100_000, 100_000), 2048)
    assert grid_for((100_000, 100_000), 1).n_shards == 2401 + 625 + 169 + 49 + 16 + 4 + 1 + 1
    assert grid_for((9000, 9000), 22 * 4).side == 1536  # all classes of a shard are in memory at once
    assert grid_for((9000, 9000), 4 * 255).side == 512
    with pytest.raises(ConfigError, match="multiple of 512"):
        grid_for((9000, 9000), 1, 700)


@pytest.mark.parametrize("cell", [1, 16])
def test_tiles_cover_a_shard_once(cell):
    place = Region(37, 201, 64, 190)
    seen = np.zeros((210, 200), int)
    for tile in cut(place, 50, cell):
        tile.of(seen)[...] += 1
        if cell > 1:
            assert all(
                edge % cell == 0 or edge in (37, 201, 64, 190)
                for edge in (tile.top, tile.bottom, tile.left, tile.right)
            )
    assert (place.of(seen) == 1).all()
    assert seen.sum() == place.height * place.width


@pytest.mark.parametrize("what", ["labels", "proba"])
def test_other_programs_open_the_result(there, stack, image, what):
    models = pytest.importorskip("ome_zarr_models", reason="ome-zarr-models is not installed")
    pytest.importorskip("bioio_ome_zarr", reason="bioio-ome-zarr is not installed")
    ngff = pytest.importorskip("ngff_zarr", reason="ngff-zarr is not installed")
    from bioio import BioImage

    path = hr.predict_large(stack, there, "a.ome.zarr", what=[what]).results[what]
    expected = stack.predict(image) if what == "labels" else stack.predict_proba(image)
    checked = models.open_ome_zarr(zarr.open_group(path, mode="r"))
    assert type(checked).__module__.startswith("ome_zarr_models.v05")
    np.testing.assert_array_equal(BioImage(path).data.squeeze(), expected)
    opened = ngff.from_ngff_zarr(path)
    np.testing.assert_array_equal(np.asarray(opened.images[0].data), expected)


def test_a_tiled_bigtiff_with_its_pyramid(tmp_path, stack):
    image = picture((1100, 700))
    path = write_ome_zarr(tmp_path / "image.ome.zarr", [image])
    result = hr.predict_large(stack, path, tmp_path / "a.ome.tif", what=["labels", "proba"], dtype="uint8", shard=512)
    with tifffile.TiffFile(result.results["labels"]) as tiff:
        assert tiff.is_bigtiff
        assert tiff.pages[0].is_tiled
        levels = [level.asarray() for level in tiff.series[0].levels]
    np.testing.assert_array_equal(levels[0], stack.predict(image))
    np.testing.assert_array_equal(levels[1], levels[0][::2, ::2])
    proba = np.moveaxis(hr.read_image(result.results["proba"]), -1, 0)
    np.testing.assert_array_equal(proba, scaled(stack.predict_proba(image), "uint8"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.ome.tif", "a_proba.ome.tif", "image.ome.zarr"]
    assert hr.predict_large(stack, path, tmp_path / "a.ome.tif", shard=512).n_resumed == 0  # ours, so it is overwritten


def test_a_region_is_that_part_of_the_whole(there, stack, image):
    hr.predict_large(stack, there, "a.ome.zarr", region="20:140,33:190", shard=64)
    np.testing.assert_array_equal(levels_of("a.ome.zarr")[0], stack.predict(image)[20:140, 33:190])
    said = zarr.open_group("a.ome.zarr").attrs["ome"]["multiscales"][0]["datasets"][0]
    assert said["coordinateTransformations"][1] == {"type": "translation", "translation": [20, 33]}
    for wrong in ("20:151,0:10", "20,30", "30:20,0:10"):
        with pytest.raises(InputError, match=r"within 150 x 190 pixels as TOP:BOTTOM,LEFT:RIGHT"):
            hr.predict_large(stack, there, "b.ome.zarr", region=wrong)


@pytest.mark.parametrize("shrinkage", [1, 2])
def test_a_mask(there, stack, image, tmp_path, shrinkage, monkeypatch):
    mask = np.zeros((150, 190), np.uint8)
    mask[20:60, 30:100] = mask[22:30, 140:160] = 255
    write(tmp_path / "mask.png", mask[::shrinkage, ::shrinkage])
    computed = []
    outputs = shard_prediction.region_outputs
    monkeypatch.setattr(shard_prediction, "region_outputs", lambda *given: computed.append(given[2]) or outputs(*given))
    hr.predict_large(stack, there, "a.ome.zarr", mask="mask.png", shard=64)
    np.testing.assert_array_equal(
        levels_of("a.ome.zarr")[0], np.where(mask > 0, stack.predict(image), stack.unlabelled)
    )
    assert sum(one.height * one.width for one in computed) < 40 * 70 + 8 * 20 + 1


@pytest.mark.parametrize("sign", [">", "<"])
def test_a_threshold_decides_for_squares(there, stack, tmp_path, sign):
    image = np.full((150, 190), 100, np.uint8)
    image[70, 100] = 200 if sign == ">" else 10
    path = write_zarr("other.zarr", image)
    for shard in (48, 512):
        hr.predict_large(stack, path, "a.ome.zarr", mask=f"{sign} 100", shard=shard, overwrite=True)
        expected = np.full((150, 190), stack.unlabelled, np.uint8)
        expected[64:128, 64:128] = stack.predict(image)[64:128, 64:128]
        np.testing.assert_array_equal(levels_of("a.ome.zarr")[0], expected)


def test_masks_that_cannot_be(there, stack, tmp_path):
    for wrong in ("> much", "> .", "> 1.2.3", "<"):
        with pytest.raises(InputError, match="give the name of an image, or a threshold"):
            hr.predict_large(stack, there, "a.ome.zarr", mask=wrong)
    write(tmp_path / "mask.png", np.ones((150, 60), np.uint8))
    with pytest.raises(InputError, match="other proportions"):
        hr.predict_large(stack, there, "a.ome.zarr", mask="mask.png")


def test_where_there_is_nothing_nothing_is_computed(there, stack, tmp_path, monkeypatch):
    image = np.full((300, 300), 7, np.uint8)
    image[:50, :50] = picture((50, 50))
    path = write_zarr("sparse.zarr", image, chunks=(50, 50), fill_value=7)
    computed = []
    outputs = shard_prediction.region_outputs
    monkeypatch.setattr(shard_prediction, "region_outputs", lambda *given: computed.append(given[2]) or outputs(*given))
    hr.predict_large(stack, path, "a.ome.zarr", what=["labels", "proba"], tile=50)
    np.testing.assert_array_equal(levels_of("a_proba.ome.zarr")[0], stack.predict_proba(image))
    assert sum(one.height * one.width for one in computed) < 4 * 2500 + 40


def test_a_level_and_what_is_said_of_it(tmp_path, stack):
    image = picture((300, 300))
    path = write_ome_zarr(tmp_path / "image.ome.zarr", [image, np.ascontiguousarray(image[::2, ::2])])
    messages = []
    hr.predict_large(stack, path, tmp_path / "a.ome.zarr", pixel_size=1.1, say=messages.append)
    np.testing.assert_array_equal(levels_of(tmp_path / "a.ome.zarr")[0], stack.predict(image[::2, ::2]))
    assert any("level 1 of 2, 150 x 150 pixels" in one for one in messages)


def test_refusals(there, stack, image, tmp_path):
    with pytest.raises(InputError, match=r"a large result must end in one of \.ome\.zarr"):
        hr.predict_large(stack, there, "a.png")
    with pytest.raises(InputError, match="there is no folder"):
        hr.predict_large(stack, there, "nowhere/a.ome.zarr")
    with pytest.raises(InputError, match=r"would overwrite the input image\.zarr"):
        hr.predict_large(stack, there, "image.zarr")
    write_zarr("mine.zarr", image)
    with pytest.raises(InputError, match="Hedgerow did not write it"):
        hr.predict_large(stack, there, "mine.zarr")
    colour = write(tmp_path / "colour.npy", np.zeros((20, 30, 3), np.uint8))
    with pytest.raises(InputError, match=r"has 3 channel\(s\) but the model was trained on 1"):
        hr.predict_large(stack, colour, "a.ome.zarr")


def test_nothing_that_is_read_is_overwritten(there, stack, tmp_path):
    """Neither the image, the mask nor their folders are overwritten, not even by a second result."""
    hr.predict_large(
        stack, there, "mask.ome.zarr", region="0:64,0:64", shard=64
    )  # ours, so that it could be overwritten
    mask = write_zarr("mask_proba.ome.zarr", np.ones((150, 190), np.uint8))
    for output, what, given in (
        ("image.zarr/inside.ome.zarr", "labels", None),
        ("mask.ome.zarr", "proba", mask),
        ("mask_proba.ome.zarr/a.ome.zarr", "labels", mask),
    ):
        with pytest.raises(InputError, match=r"would overwrite the input "):
            hr.predict_large(stack, there, output, what=[what], mask=given, overwrite=True)
    np.testing.assert_array_equal(hr.read_image(mask), np.ones((150, 190)))


def test_the_next_one_is_read_while_the_last_is_computed():
    begun = []
    items = shards.ahead(lambda i: begun.append(i) or i, range(4))
    assert next(items) == (0, 0)
    assert next(items) == (1, 1)
    assert begun[:2] == [0, 1]
    assert list(items) == [(2, 2), (3, 3)]


def test_the_command_line(there, stack, image, hedgerow, tmp_path):
    hr.save(stack, "model.hedge")
    run = hedgerow("predict", "model.hedge", "image.zarr", "-o", "a.ome.zarr", "--proba", "--proba-type", "uint8")
    assert run.code == 0, run.err
    assert "150 x 190 pixels predicted into a.ome.zarr, a_proba.ome.zarr" in run.out
    np.testing.assert_array_equal(hr.read_image("a.ome.zarr"), stack.predict(image))
    run = hedgerow("predict", "model.hedge", "image.zarr", "-o", "a.ome.zarr", "--measure")
    assert run.code == 2
    assert "--measure needs the whole image in memory" in run.err
    run = hedgerow("predict", "model.hedge", "image.zarr", "-o", "folder", "--region", "0:5,0:5")
    assert "--region needs a single image" in run.err
