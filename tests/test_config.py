"""Settings: limits and types as data, files there and back, the paper's presets, threads."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow import threads
from hedgerow.config import AugmentConfig, ContextConfig, SamplingConfig, StackConfig
from hedgerow.errors import ConfigError, InputError
from hedgerow.settings import documented_toml

CONFIGS = (ContextConfig, SamplingConfig, AugmentConfig, StackConfig)
LIMITED = [
    pytest.param(config, item.name, item.metadata["low"], item.metadata["high"], id=f"{config.__name__}.{item.name}")
    for config in CONFIGS
    for item in dataclasses.fields(config)
    if item.metadata["low"] is not None
]
REQUIRED = [(config, item.name) for config in CONFIGS for item in dataclasses.fields(config)]

CHANGED = StackConfig(
    n_levels=1,
    criterion="entropy",
    balance=True,
    held_out="folds",
    skip=1e-2,
    sigmas=(0.3, 500),
    context=ContextConfig(window=1, n_channels=7, radii=(0, 3, 256), depth_unit=1e-6),
    sampling=SamplingConfig(kind="per_class", fraction=1e-6),
    augment=AugmentConfig(copies=0, flip=True),
    seed=2**63 - 1,
)


def value_in_kind(config, name, number):
    """The number, in a list where the setting is a list."""
    is_list = isinstance(getattr(config(), name), tuple)
    return [number] if is_list else number


def test_every_number_has_limits():
    for config in CONFIGS:
        for item in dataclasses.fields(config):
            if isinstance(getattr(config(), item.name), int | float | tuple) and item.type != "bool":
                assert None not in (item.metadata["low"], item.metadata["high"]), item.name


@pytest.mark.parametrize(("config", "name", "low", "high"), LIMITED)
def test_limits_are_included_and_what_lies_beyond_is_refused(config, name, low, high):
    # An even window has no centre; its upper limit is odd. The nearest depth may not exceed the background.
    together = {"nearest": {"background": 1e6}, "background": {"nearest": 1e-3}}.get(name, {})
    for edge in (low, high):
        given_value = value_in_kind(config, name, edge)
        found = getattr(config(**together, **{name: given_value}), name)
        assert found == (tuple(given_value) if isinstance(given_value, list) else edge)
    for beyond in (low - 1, high + (high - low) + 1, float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ConfigError, match=name) as refusal:
            config(**together, **{name: value_in_kind(config, name, beyond)})
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("config", "name"), REQUIRED)
@pytest.mark.parametrize("wrong", ["three", b"3", [["3"]], {"a": 1}, object(), np.array([1, 2]), 1 + 2j])
def test_wrong_types_are_refused(config, name, wrong):
    with pytest.raises(ConfigError):
        config(**{name: wrong})


@pytest.mark.parametrize(("config", "name"), REQUIRED)
def test_only_what_may_be_unset_takes_none(config, name):
    if name in ("n_channels", "n_candidates", "depth_candidates", "window_z"):
        assert getattr(config(**{name: None}), name) is None
    else:
        with pytest.raises(ConfigError):
            config(**{name: None})


def test_booleans_and_numbers_are_not_mixed_up():
    for changes in ({"n_trees": True}, {"skip": True}, {"balance": 1}, {"n_trees": 3.0}, {"n_trees": "3"}):
        with pytest.raises(ConfigError):
            StackConfig(**changes)


def test_numbers_of_numpy_become_plain():
    config = StackConfig(n_trees=np.int16(4), skip=np.float32(0.25), sigmas=np.array([1.0, 2.0]).tolist())
    assert type(config.n_trees) is int
    assert type(config.skip) is float
    assert json.loads(json.dumps(config.to_dict()))["skip"] == 0.25


@pytest.mark.parametrize(
    "changes",
    [
        {"context": ContextConfig, "values": {"window": 128}},
        {"context": ContextConfig, "values": {"radii": []}},
        {"context": ContextConfig, "values": {"nearest": 5, "background": 4}},
        {"context": StackConfig, "values": {"sigmas": []}},
        {"context": StackConfig, "values": {"sigmas": [1.0] * 101}},
        {"context": StackConfig, "values": {"skip": 10**400}},
        {"context": StackConfig, "values": {"n_trees": 10**400}},
        {"context": StackConfig, "values": {"features": []}},
        {"context": StackConfig, "values": {"features": ["bank", "bank"]}},
        {"context": StackConfig, "values": {"features": ["bank", 3]}},
        {"context": StackConfig, "values": {"features": None}},
        {"context": StackConfig, "values": {"n_tree": 5}},
        {"context": StackConfig, "values": {"context": {"windows": 5}}},
        {"context": StackConfig, "values": {"context": 5}},
        {"context": StackConfig, "values": {"context": {"radii": [0, 1.5]}}},
    ],
)
def test_what_fits_no_model_is_refused(changes):
    with pytest.raises(ConfigError) as refusal:
        changes["context"].from_dict(changes["values"])
    assert "\n" not in str(refusal.value)


def test_one_kind_of_feature_or_several():
    assert StackConfig(features=["bank"]).features == "bank"
    assert StackConfig(features=["bank", "channels"]).features == ("bank", "channels")
    assert StackConfig(features="bank+channels") == StackConfig(features=("bank", "channels"))
    assert StackConfig.from_dict(StackConfig(features="bank+channels").to_dict()).features == ("bank", "channels")


def test_scales_are_needed_by_the_bank_alone():
    assert StackConfig(sigmas=(), features="channels").sigmas == ()


def test_unknown_settings_are_named_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'n_tree' and 1 more; it has .*n_trees"):
        StackConfig.from_dict({"zoom": 1, "n_tree": 5})


@pytest.mark.parametrize("values", [None, [], "n_trees = 3", 5])
def test_a_table_is_expected(values):
    with pytest.raises(ConfigError):
        StackConfig.from_dict(values)


@pytest.mark.parametrize("config", [StackConfig(), StackConfig.zebrafish(), StackConfig.kinect(), CHANGED])
@pytest.mark.parametrize("ending", [".toml", ".json", ".TOML", ".JSON"])
def test_files_there_and_back(tmp_path, config, ending):
    config.write(tmp_path / f"settings{ending}")
    assert StackConfig.read(tmp_path / f"settings{ending}") == config
    assert [path.name for path in tmp_path.iterdir()] == [f"settings{ending}"]


@pytest.mark.parametrize("config", [StackConfig(), CHANGED])
def test_documented_settings_read_back_the_same(tmp_path, config):
    text = documented_toml(config)
    (tmp_path / "settings.toml").write_text(text)
    assert StackConfig.read(tmp_path / "settings.toml") == config
    for item in dataclasses.fields(StackConfig):
        assert item.name in text


@given(
    st.floats(0.01, 0.9),
    st.lists(st.floats(0.3, 500), min_size=1, max_size=5),
    st.integers(0, 2**63 - 1),
    st.sampled_from([".toml", ".json"]),
)
def test_any_number_survives_a_file(tmp_path_factory, skip, sigmas, seed, ending):
    config = StackConfig(skip=skip, sigmas=tuple(sigmas), seed=seed)
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    config.write(path)
    assert StackConfig.read(path) == config


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "settings.toml"
    CHANGED.write(path)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InputError, match="No space left"):
        StackConfig().write(path)
    assert StackConfig.read(path) == CHANGED
    assert os.listdir(tmp_path) == ["settings.toml"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.toml", b"n_trees = "),
        ("a.toml", b"n_trees = 3\nn_trees = 4"),
        ("a.toml", b"\xff\xfe\x00"),
        ("a.toml", b"n_trees = nan"),
        ("a.toml", b"skip = nan"),
        ("a.toml", b"a = " + b"[" * 5000),
        ("a.json", b""),
        ("a.json", b"[1, 2]"),
        ("a.json", b'{"n_trees": 1e400}'),
        ("a.json", b'{"skip": NaN}'),
        ("a.json", b'{"n_trees": ' + b"9" * 5000 + b"}"),
        ("a.json", b"[" * 100_000),
        ("a.json", b"null"),
        ("a.toml", b".".join([b"a"] * 50_000) + b" = 1"),
        ("a.toml", b"n_trees = " + b"1" * 100_000),
        ("a.toml", b"n_trees = 0x" + b"1" * 900),
        ("a.toml", b"features = '" + b"a" * 10_000_000 + b"'"),
        ("a.json", b'{"features": "' + b"a" * 1_000_000 + b'"}'),
        ("a.json", b'{"features": ' + b'{"a":' * 40 + b"1" + b"}" * 41),
    ],
)
def test_unusable_files_are_one_sentence_that_names_them(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as refusal:
        StackConfig.read(tmp_path / name)
    assert str(tmp_path / name) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 600 + len(str(tmp_path))


def test_a_settings_file_may_begin_with_a_mark(tmp_path):
    for name, content in (("a.toml", b"n_trees = 7"), ("a.json", b'{"n_trees": 7}')):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
        assert StackConfig.read(tmp_path / name) == StackConfig(n_trees=7)


def test_missing_files_and_folders_are_named(tmp_path):
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="settings file") as refusal:
            StackConfig.read(path)
        assert str(path) in str(refusal.value)
        assert "check its name" in str(refusal.value)


@given(st.binary(max_size=60), st.sampled_from(["a.toml", "a.json"]))
def test_whatever_the_bytes_reading_gives_settings_or_a_sentence(tmp_path_factory, content, name):
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    try:
        answer = repr(StackConfig.read(path))
    except ConfigError as refusal:
        answer = str(refusal)
    assert "\n" not in answer


def test_settings_cannot_be_changed_behind_their_checks():
    config = StackConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.n_trees = 0
    with pytest.raises(ConfigError):
        dataclasses.replace(config, n_trees=0)


def test_zebrafish_preset_holds_the_papers_values():
    config = StackConfig.zebrafish()
    assert (config.n_levels, config.n_trees, config.max_depth, config.min_split) == (3, 16, 12, 25)
    assert config.features == "bank"
    assert config.context.n_channels is None  # the square root of all
    assert (config.context.n_offsets, config.context.window) == (10, 129)
    assert (config.context.n_probes, config.context.radii) == (1, (0,))
    assert (config.sampling.kind, config.sampling.step, config.sampling.fraction) == ("grid", 3, 0.25)
    assert (config.augment.copies, config.augment.rotation, config.augment.flip) == (2, 180, False)
    assert config.held_out == "none"


def test_kinect_preset_holds_the_papers_values():
    config = StackConfig.kinect()
    assert (config.n_levels, config.n_trees, config.max_depth, config.min_split) == (2, 10, 12, 25)
    assert config.features == "depth"
    assert config.context.n_candidates == 100
    assert config.context.offset_sigma == 50
    assert (config.sampling.kind, config.sampling.per_class) == ("per_class", 20)
    assert config.augment.copies == 0
    assert config.held_out == "none"


@pytest.mark.parametrize(
    ("preset", "n_samples"),
    [(StackConfig.zebrafish, 3 * 16 * (800 // 3) * (950 // 3) // 4), (StackConfig.kinect, 2000 * 20 * 20)],
)
def test_presets_keep_every_sample_of_the_papers_sets(preset, n_samples):
    assert preset().sampling.max_samples >= n_samples


def test_presets_take_changes_and_check_them():
    assert StackConfig.kinect(seed=5) == dataclasses.replace(StackConfig.kinect(), seed=5)
    with pytest.raises(ConfigError):
        StackConfig.zebrafish(n_levels=0)


def test_threads_are_set_for_a_block_and_given_back():
    before = threads.get_threads()
    with threads.threads(before + 3):
        assert threads.get_threads() == before + 3
    with pytest.raises(ZeroDivisionError), threads.threads(7):
        1 / 0  # noqa: B018
    assert threads.get_threads() == before
    with pytest.raises(ConfigError, match="at least 1"):
        threads.set_threads(0)
    assert threads.get_threads() == before


@pytest.mark.parametrize(("text", "expected"), [("3", "3"), ("0", None), ("-2", None), ("many", None), ("²", None)])
def test_the_environment_may_say_how_many_threads(text, expected):
    ask = "from hedgerow.threads import get_threads; print(get_threads())"
    environment = {**os.environ, "HEDGEROW_THREADS": text, "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", ask]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (expected or str(len(os.sched_getaffinity(0))))


def test_work_is_shared_in_order_and_an_error_comes_through():
    with threads.threads(4):
        assert list(threads.map_threads(lambda i: i * i, range(20))) == [i * i for i in range(20)]
        with pytest.raises(ZeroDivisionError):
            list(threads.map_threads(lambda i: 1 / (i - 3), range(20)))


def test_refusals_stay_short_whatever_was_given():
    for values in ({"x" * 5000: 1}, {letter * 5000: 1 for letter in "abcdef"}, {"n_trees": list(range(5000))}):
        with pytest.raises(ConfigError) as problem:
            StackConfig.from_dict(values)
        assert len(str(problem.value)) < 500


def test_features_that_nobody_has_are_refused_when_settings_are_made():
    for features in ("gabor", "bank+gabor", ("bank", "gabor")):
        with pytest.raises(ConfigError, match=r"StackConfig\.features is 'gabor'; it must be one of bank, channels"):
            StackConfig(features=features)
    assert StackConfig(features="encoder:mobilesam+bank").features == ("encoder", "bank")
