"""A refinement that was stopped goes on as if it had not been; a checkpoint that is not its own is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors import safe_open
from safetensors.torch import save_file

import hedgerow as hr
from conftest import CLASSES
from hedgerow import files
from hedgerow.config import Sharpness
from hedgerow.errors import DivergenceError, ModelError
from hedgerow.network.mapping import to_convnet
from hedgerow.progress import silent
from hedgerow.refinement import checkpoints
from hedgerow.refinement.loop import refine
from helpers.refinements import SHORT, Stopped, assert_same_refinement, record, register_loss, run, stop_at
from helpers.refusals import assert_one_sentence

RESUMED = {
    "adam": {},
    "adam, averaged": {"average": 0.6},
    "sgd": {"optimiser": "sgd", "learning_rate": 0.1},
    "sgd, averaged, halving": {"optimiser": "sgd", "learning_rate": 0.1, "average": 0.6, "decay": "halving"},
    "best kept": {"keep": "best", "learning_rate": 0.5},
    "crops": {"crop": 16},
}


@pytest.mark.parametrize("case", RESUMED)
def test_a_run_stopped_anywhere_and_resumed_equals_one_that_was_not(net, example, tmp_path, caplog, case):
    config = replace(SHORT, n_steps=5, **RESUMED[case])
    whole = run(net, example, config)
    path = tmp_path / "state"
    for step in (0, 1, 2, 3, 4, 5) if case == "adam" else (3, 5):
        with pytest.raises(Stopped):
            run(net, example, config, checkpoint=path, progress=stop_at(step))
        assert path.exists() == (step > 2)
        caplog.clear()
        resumed = run(net, example, config, checkpoint=path)
        assert ("resuming from step" in caplog.text) == (step > 2)
        assert_same_refinement(resumed, whole, tmp_path)
        assert list(tmp_path.iterdir()) == [], "the checkpoint is removed at the end"


@pytest.mark.parametrize("connections", ["sparse", "full"])
def test_trained_connections_are_resumed(stack, example, tmp_path, connections):
    net, config = to_convnet(stack, "tanh", connections=connections), replace(SHORT, n_steps=4, stride=4, held_out=0.0)
    whole = run(net, example, config)
    with pytest.raises(Stopped):
        run(net, example, config, checkpoint=tmp_path / "state", progress=stop_at(3))
    assert_same_refinement(run(net, example, config, checkpoint=tmp_path / "state"), whole, tmp_path)


def test_a_run_may_be_stopped_right_after_each_checkpoint_again_and_again(net, example, tmp_path):
    config, path, reports = replace(SHORT, average=0.6), tmp_path / "state", []
    whole = run(net, example, config)
    for step in (3, 5):  # the state of steps 2 and 4 was saved
        with pytest.raises(Stopped):
            run(net, example, config, checkpoint=path, progress=stop_at(step))
    run(net, example, config, checkpoint=path, keep_checkpoint=True)
    resumed = run(net, example, config, checkpoint=path, progress=lambda *r: reports.append(r))
    assert reports == [("refining", 6, 6)], "only the last scores were missing"
    assert_same_refinement(resumed, whole, tmp_path)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(net, example, tmp_path, monkeypatch):
    path, written = tmp_path / "state", []
    write = type(path).write_bytes

    def write_half(self, content):
        written.append(self)
        if len(written) == 2:
            write(self, content[: len(content) // 2])
            raise Stopped
        return write(self, content)

    monkeypatch.setattr(type(path), "write_bytes", write_half)
    with pytest.raises(Stopped):
        run(net, example, checkpoint=path)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == [path]
    assert_same_refinement(run(net, example, checkpoint=path), run(net, example), tmp_path)


def test_the_checkpoint_of_a_finished_run_may_be_kept_and_gives_the_same_network(net, example, tmp_path):
    path = tmp_path / "state"
    whole = run(net, example, checkpoint=path, keep_checkpoint=True)
    assert path.exists()
    assert_same_refinement(run(net, example, checkpoint=path), whole, tmp_path)
    assert not path.exists()


def test_patience_counts_on_after_a_stop(net, example, tmp_path):
    config = replace(SHORT, n_steps=20, patience=3)
    whole = run(net, example, config)
    assert record(whole).checks[-1].step == 6
    with pytest.raises(Stopped):
        run(net, example, config, checkpoint=tmp_path / "state", progress=stop_at(5))
    assert_same_refinement(run(net, example, config, checkpoint=tmp_path / "state"), whole, tmp_path)


def test_a_resumed_run_gives_up_where_the_whole_one_does(net, example, tmp_path, monkeypatch):
    steps = register_loss(monkeypatch, "growing", lambda step, loss: 0 * loss + (1.0 if step == 1 else 6.0))
    config = replace(SHORT, loss="growing", dice=0.0)
    with pytest.raises(DivergenceError):
        run(net, example, config)
    steps.clear()
    with pytest.raises(Stopped):
        run(net, example, config, checkpoint=tmp_path / "state", progress=stop_at(3))
    with pytest.raises(DivergenceError):
        run(net, example, config, checkpoint=tmp_path / "state")


@pytest.fixture
def stopped(net, example, tmp_path):
    """The checkpoint of a run that was stopped after step 3."""
    with pytest.raises(Stopped):
        run(net, example, checkpoint=tmp_path / "state", progress=stop_at(3))
    return tmp_path / "state"


def refused(net, images, labels, config, path, **options):
    before = path.read_bytes()
    with pytest.raises(ModelError) as refusal:
        refine(net, images, labels, config, checkpoint=path, progress=silent, **options)
    assert_one_sentence(refusal, path, "delete it")
    assert path.read_bytes() == before
    return str(refusal.value)


def test_the_checkpoint_of_another_refinement_is_refused(stack, net, example, stopped, unseen):
    images, labels = list(example.images), list(example.labels)
    brighter = [images[0] + np.uint8(1), images[1]]
    relabelled = [np.where(labels[0] == CLASSES[0], CLASSES[1], labels[0]), labels[1]]
    others = {
        "images": (net, brighter, labels, SHORT, {}),
        "order": (net, images[::-1], labels[::-1], SHORT, {}),
        "labels": (net, images, relabelled, SHORT, {}),
        "fewer": (net, images[:1], labels[:1], SHORT, {}),
        "seed": (net, images, labels, replace(SHORT, seed=9), {}),
        "steps": (net, images, labels, replace(SHORT, n_steps=8), {}),
        "validation": (net, images, labels, SHORT, {"validation": unseen}),
        "sharpness": (to_convnet(stack, "soft", Sharpness(99.0, 1.0, 0.5)), images, labels, SHORT, {}),
        "split": (to_convnet(stack, "tanh"), images, labels, SHORT, {}),
        "connections": (to_convnet(stack, connections="full"), images, labels, SHORT, {}),
    }
    for other, (network, pictures, maps, config, options) in others.items():
        assert "another refinement" in refused(network, pictures, maps, config, stopped, **options), other
    run(net, example, checkpoint=stopped)


@pytest.mark.parametrize(
    "kind", [{"split": "crelu"}, {"activation": "softmax"}, {"connections": "sparse"}], ids=lambda kind: str(*kind)
)
def test_the_checkpoint_of_another_kind_of_network_is_refused(stack, net, example, stopped, kind):
    other = to_convnet(stack, **kind)
    assert "another refinement" in refused(other, example.images, example.labels, SHORT, stopped)


def damaged(content, how):
    rng = np.random.default_rng(0)
    return {
        "empty": b"",
        "cut in the header": content[:100],
        "cut in the middle": content[: len(content) // 2],
        "last byte missing": content[:-1],
        "a byte too many": content + b"\0",
        "random bytes": rng.bytes(len(content)),
        "text": b"not a checkpoint at all",
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "cut in the header",
        "cut in the middle",
        "last byte missing",
        "a byte too many",
        "random bytes",
        "text",
    ],
)
def test_a_damaged_checkpoint_is_refused(net, example, stopped, how):
    stopped.write_bytes(damaged(stopped.read_bytes(), how))
    refused(net, example.images, example.labels, SHORT, stopped)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_a_checkpoint_for_which_there_is_no_room_is_not_to_be_deleted(net, example, stopped, monkeypatch, error):
    def refuse(*arguments, **options):
        raise error

    monkeypatch.setattr(checkpoints, "safe_open", refuse)
    with pytest.raises(type(error)):
        run(net, example, checkpoint=stopped)


@pytest.mark.parametrize(
    "metadata", [None, {"format": "pt"}, {checkpoints.CHECKPOINT_FORMAT: "{"}, {checkpoints.CHECKPOINT_FORMAT: "[]"}]
)
def test_a_foreign_file_is_no_checkpoint(net, example, tmp_path, metadata):
    save_file({"weights.a": torch.zeros(3)}, tmp_path / "state", metadata=metadata)
    refused(net, example.images, example.labels, SHORT, tmp_path / "state")


def test_a_model_file_is_no_checkpoint(net, example, tmp_path):
    hr.save(net, tmp_path / "state")
    refused(net, example.images, example.labels, SHORT, tmp_path / "state")


def edited(path, change):
    """The checkpoint, its tensors and document changed, under the mark and the digest that fit."""
    with safe_open(path, framework="pt") as file:
        document = json.loads(file.metadata()[checkpoints.CHECKPOINT_FORMAT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    change(document, tensors)
    del document["digest"]
    document["digest"] = files.digest(document, {name: tensor.numpy() for name, tensor in tensors.items()})
    save_file(tensors, path, metadata={checkpoints.CHECKPOINT_FORMAT: json.dumps(document)})


def drop_weight(document, tensors):
    del tensors["weights.levels.0.split_bias"]


def shorten_weight(document, tensors):
    tensors["weights.levels.0.split_bias"] = tensors["weights.levels.0.split_bias"][:-1].clone()


def shorten_moment(document, tensors):
    tensors["moments.0.exp_avg"] = tensors["moments.0.exp_avg"][:-1].clone()


def forget_history(document, tensors):
    document["checks"] = []


def misname_step(document, tensors):
    document["step"] = "two"


def spoil_weight(document, tensors):
    tensors["weights.levels.0.split_bias"][0] = torch.nan


def score_nothing(document, tensors):
    document["scores"] = [float("nan"), 0.5]


def score_too_well(document, tensors):
    document["scores"] = [7.0, 0.5]


def forget_a_score(document, tensors):
    document["checks"][0]["mean_dice"] = None


def lose_endlessly(document, tensors):
    document["checks"][0]["loss"] = 10**400


def check_later(document, tensors):
    document["checks"][-1]["step"] += 1


def nest(document, tensors):
    document["surprise"] = json.loads("[" * 100 + "]" * 100)


DRAWN = [drop_weight, shorten_weight, shorten_moment, forget_history, misname_step, spoil_weight, score_nothing]
DRAWN += [score_too_well, lose_endlessly, check_later, nest]


@pytest.mark.parametrize("change", DRAWN)
def test_a_checkpoint_whose_parts_do_not_fit_is_refused(net, example, stopped, change):
    edited(stopped, change)
    refused(net, example.images, example.labels, SHORT, stopped)


def test_a_checkpoint_that_lost_a_score_is_refused(net, example, unseen, tmp_path):
    with pytest.raises(Stopped):
        run(net, example, checkpoint=tmp_path / "state", progress=stop_at(3), validation=unseen)
    edited(tmp_path / "state", forget_a_score)
    refused(net, example.images, example.labels, SHORT, tmp_path / "state", validation=unseen)


def test_a_changed_byte_of_a_checkpoint_is_noticed(net, example, stopped):
    content = bytearray(stopped.read_bytes())
    content[-1] ^= 0x01
    stopped.write_bytes(content)
    refused(net, example.images, example.labels, SHORT, stopped)
