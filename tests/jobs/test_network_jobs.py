"""Refining and mapping back from file to file: what is kept when a run is stopped, diverges, or cannot be written."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import hedgerow as hr
from hedgerow import jobs
from hedgerow.config import RefineConfig
from hedgerow.io import model_file as model_files
from hedgerow.jobs import mapping_back
from hedgerow.progress import quiet, silent
from helpers.files import listing, unchanged, write
from helpers.refinements import SHORT, Stopped, assert_same_weights, stop_at


@pytest.fixture
def refine(trained_place):
    """Refines the model of the folder: refine(config) -> Refined, the network in net.hedge."""

    def run(config=SHORT, *, say=quiet, progress=silent, **options):
        images, labels = trained_place / "images", trained_place / "labels"
        output = trained_place / "net.hedge"
        return jobs.refine(
            jobs.RefineRequest(trained_place / "model.hedge", images, labels, output, config, **options),
            say=say,
            progress=progress,
        )

    return run


def test_refining_says_what_the_network_is_and_returns_it(refine, place, refined, capsys):
    said = []
    result = refine(say=said.append)
    assert said == ["network of 5 hidden layers, soft splits; sharpness 100/1/0.5"]
    assert_same_weights(result.net, refined)
    assert_same_weights(hr.load(place / "net.hedge"), refined)
    assert result.n_bytes == (place / "net.hedge").stat().st_size
    assert capsys.readouterr() == ("", "")


def test_a_stopped_run_goes_on_when_the_job_is_called_again(refine, place, refined, caplog):
    with pytest.raises(Stopped):
        refine(progress=stop_at(5))
    assert (place / "net.hedge.checkpoint").exists()
    assert not (place / "net.hedge").exists()
    found = refine()
    assert "resuming from step 4" in caplog.text
    assert_same_weights(found.net, refined)
    assert not (place / "net.hedge.checkpoint").exists()


def test_a_run_that_diverges_leaves_the_last_good_network(refine, place):
    wild = RefineConfig(n_steps=20, check_every=5, optimiser="sgd", learning_rate=1e3)
    with pytest.raises(hr.DivergenceError, match="kept") as problem:
        refine(wild)
    assert_same_weights(hr.load(place / "net.hedge"), problem.value.network)
    assert not (place / "net.hedge.checkpoint").exists()


def test_the_checkpoint_stays_until_a_network_is_safe(refine, place, refined, monkeypatch):
    def full(*_):
        raise hr.InputError("the disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(model_files, "save", full)
        with pytest.raises(hr.InputError, match="full"):
            refine()
    assert (place / "net.hedge.checkpoint").exists()
    assert_same_weights(refine().net, refined)


def test_the_model_itself_and_files_to_keep_are_not_written_over(refine, place):
    before = listing(place)
    with pytest.raises(hr.InputError, match="another name"):
        refine(keep=[place / "net.hedge"])
    unchanged(place, before)


def test_the_job_refines_on_planes_as_it_does_on_pictures(place, example, tiny_config):
    planes = [np.stack([image, 255 - image]).astype(np.float32) for image in example.images]
    for number, (image, labels) in enumerate(zip(planes, example.labels, strict=True)):
        write(place / "planes" / f"a{number}.npy", image)
        write(place / "marks" / f"a{number}.npy", labels)
    stack = hr.fit_stack(planes, example.labels, replace(tiny_config, features="channels"))
    hr.save(stack, place / "own.hedge")
    given = (place / "own.hedge", place / "planes", place / "marks", place / "net.hedge", SHORT)
    found = jobs.refine(jobs.RefineRequest(*given, split="tanh"), progress=silent)
    expected = hr.refine(hr.to_convnet(stack, "tanh"), planes, example.labels, SHORT, progress=silent)
    assert_same_weights(found.net, expected)


def test_what_a_tolerance_changes_is_measured_on_a_few_images(place, net_file, refined, example, monkeypatch):
    monkeypatch.setattr(mapping_back, "N_COMPARED", 1)
    result = jobs.back(
        jobs.BackRequest(net_file, place / "soft.hedge", place / "images", "soft", tolerance=0.3), progress=silent
    )
    assert result.n_compared == 1
    exact = hr.load(net_file)
    exact.set_tolerance(0.0)
    rough = hr.to_forest(refined, method="soft", tolerance=0.3)
    image = example.images[0]
    assert result.changed == np.mean(exact.predict(image) != rough.predict(image))
    without = jobs.back(jobs.BackRequest(net_file, place / "soft.hedge", None, "soft", tolerance=0.3), progress=silent)
    assert (without.n_compared, without.changed) == (0, 0.0)
    exactly = jobs.back(
        jobs.BackRequest(net_file, place / "soft.hedge", place / "images", "soft", tolerance=0.0), progress=silent
    )
    assert exactly.n_compared == 0
