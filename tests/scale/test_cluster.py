"""Many workers: the same bits, one task per shard, and nothing is lost when a worker dies."""

import os
from argparse import Namespace

import numpy as np
import pytest

import hedgerow as hr
from hedgerow import jobs
from hedgerow.errors import ConfigError, HedgerowError, InputError
from hedgerow.forest.autocontext import grow_stack
from hedgerow.images.given import labelled_set
from hedgerow.images.stored import ImageSpec
from hedgerow.io.model_file import file_content
from hedgerow.scale import cluster, shard_prediction, worker_tasks
from hedgerow.scale.large_results import results_for
from hedgerow.scale.shard_prediction import Job, work_on
from hedgerow.scale.shards import ShardGrid
from helpers.files import listing, write
from helpers.large import picture, write_zarr

distributed = pytest.importorskip("distributed")

OPTIONS = {"what": ("labels", "proba"), "shard": 64}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A client of two workers in their own processes."""
    with cluster.connected(2) as client:
        yield client


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_zarr("image.zarr", picture())


def test_workers_give_the_same_bits(two, there, stack, tmp_path):
    hr.predict_large(stack, there, "whole.ome.zarr", **OPTIONS)
    hr.predict_large(stack, there, "a.ome.zarr", client=two, **OPTIONS)
    for suffix in ("", "_proba"):
        assert listing(tmp_path / f"a{suffix}.ome.zarr") == listing(tmp_path / f"whole{suffix}.ome.zarr")


def test_a_file_a_task_with_the_failures_named_at_the_end(two, stack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hr.save(stack, "model.hedge")
    for i in range(3):
        write(tmp_path / "in" / f"{i}.png", picture(seed=i))
    (tmp_path / "in" / "bad.png").write_bytes(b"nonsense")
    found = jobs.predict(jobs.PredictRequest("model.hedge", "in", "out", workers=two, measure=True))
    assert (found.n_images, len(found.failures)) == (4, 1)
    assert found.failures[0].startswith("cannot read in/bad.png")
    jobs.predict(jobs.PredictRequest("model.hedge", "in", "here", measure=True))
    assert listing(tmp_path / "out") == listing(tmp_path / "here")


@pytest.mark.parametrize("n_killed", [1, 2])
def test_workers_that_are_killed_lose_nothing(two, there, stack, tmp_path, n_killed):
    """Not even the model is lost if all workers that have it are gone."""
    two.wait_for_workers(2, timeout=300)  # workers that an earlier test killed are restarted
    hr.predict_large(stack, there, "whole.ome.zarr", shard=32)
    killed = []

    def report(what, done, total):
        if done == 7 and not killed:
            killed.extend(list(two.run(os.getpid).values())[:n_killed])
            for process in killed:
                os.kill(process, 9)

    hr.predict_large(stack, there, "a.ome.zarr", shard=32, client=two, progress=report)
    assert len(killed) == n_killed
    assert listing(tmp_path / "a.ome.zarr") == listing(tmp_path / "whole.ome.zarr")


def test_workers_grow_the_same_model(two, example, tiny_config, tmp_path):
    labelled = labelled_set(example.images, example.labels)
    expected = grow_stack(labelled, tiny_config)
    assert file_content(grow_stack(labelled, tiny_config, grow_all=cluster.trees_on(two))) == file_content(expected)


def test_the_graph_stays_small(two):
    """With any number of items, the scheduler has only a few more tasks than threads."""
    known = []
    submit = two.submit

    class Counting:
        loop, status = two.loop, "running"
        nthreads = two.nthreads

        def submit(self, *given, **options):
            known.append(1)
            return submit(*given, **options)

    items = cluster.side_by_side(Counting(), abs, range(-50, 0))
    first = [next(items) for _ in range(10)]
    assert len(known) <= 10 + 2 * 2 + 1
    assert sorted([*first, *items]) == sorted((i, -i) for i in range(-50, 0))


def test_workers_that_come_later_get_work(two):
    """A cluster may start with one worker and grow; then the scheduler gets more tasks at a time."""
    submitted, threads = [], {"one": 1}
    submit = two.submit

    class Growing:
        loop, status = two.loop, "running"

        def nthreads(self):
            return threads

        def submit(self, *given, **options):
            submitted.append(1)
            return submit(*given, **options)

    items = cluster.side_by_side(Growing(), abs, range(-30, 0))
    next(items)
    assert len(submitted) == 1 + 2
    threads["two"] = 4
    next(items)
    assert len(submitted) == 2 + 2 * 5
    assert len(list(items)) == 28


def test_a_cluster_that_starts_workers_when_there_is_work(there, stack, example, tiny_config):
    """As with `adapt`: there are no workers until there is a task."""
    labelled = labelled_set(example.images, example.labels)
    quiet = {"dashboard_address": "127.0.0.1:0", "processes": False, "threads_per_worker": 1, "silence_logs": 50}
    for work in (
        lambda client: hr.predict_large(stack, there, "a.ome.zarr", shard=64, client=client),
        lambda client: grow_stack(labelled, tiny_config, grow_all=cluster.trees_on(client)),
    ):
        with distributed.LocalCluster(n_workers=0, **quiet) as some:
            some.adapt(minimum=0, maximum=1, interval="20ms")
            with distributed.Client(some, set_as_default=False) as client:
                work(client)
    np.testing.assert_array_equal(hr.read_image("a.ome.zarr"), stack.predict(picture()))


def test_an_error_of_a_worker_is_told(two, there, stack, tmp_path):
    (tmp_path / "image.zarr" / "c" / "1" / "2").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"image\.zarr: its chunk c/1/2 is damaged"):
        hr.predict_large(stack, there, "a.ome.zarr", client=two, **OPTIONS)


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with (
        pytest.raises(InputError, match=r"there is no Dask scheduler at tcp://127\.0\.0\.1:9: .* start one"),
        cluster.connected("tcp://127.0.0.1:9"),
    ):
        pass
    with pytest.raises(ConfigError, match="at least 1"), cluster.connected(0):
        pass
    for wrong in ("nonsense", "tcp://host", "host:", "tcp://user:hidden@127.0.0.1:9"):
        with pytest.raises(ConfigError, match="give host and port") as problem, cluster.connected(wrong):
            pass
        assert "hidden" not in str(problem.value)


def test_without_dask(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(HedgerowError, match=r"needs distributed, .* '\.\[scale\]'"), cluster.connected(2):
        pass


def test_one_task_owns_one_shard():
    """The shards of a level cover it without overlap: two tasks that write to one shard would lose data."""
    grid = ShardGrid((2500, 3300), 512)
    for level in range(grid.n_levels):
        seen = np.zeros(grid.level_size(level), int)
        for shard in grid.shards(level):
            shard.region.of(seen)[...] += 1
            assert (shard.region.top % 512, shard.region.left % 512) == (0, 0)
        assert (seen == 1).all()


def test_a_shard_that_is_done_is_not_computed_again(there, stack, monkeypatch):
    """A worker may die after it has written a shard and before it reports it."""
    monkeypatch.setattr(
        cluster, "side_by_side", lambda client, work, items, *others: [(i, work(i, *others)) for i in items]
    )
    client = Namespace(submit=lambda work, content, **options: work(content))
    begun = []
    monkeypatch.setattr(shard_prediction, "fingerprint", lambda record: "")
    monkeypatch.setattr(
        shard_prediction, "predicted", lambda job, model, shard: begun.append(shard.name) or {"labels": None}
    )
    monkeypatch.setattr(shard_prediction.ome_zarr_out, "write_shard", lambda *given: None)
    content = worker_tasks.content_of(stack)
    job = Job(ImageSpec(there), results_for(stack, "a.ome.zarr", ["labels"], "uint8"), ShardGrid((150, 190), 64), None)
    job.markers.set_done("0-1-1")
    assert len(list(worker_tasks.each_on(client, work_on, content, "cpu")(job, job.grid.shards(0)))) == 9
    assert len(begun) == 8
    assert "0-1-1" not in begun


def test_without_workers_there_is_no_client():
    with cluster.connected(None) as client:
        assert client is None


def test_auto_uses_a_gpu_for_networks_and_encoders_alone(stack, monkeypatch):
    assert worker_tasks.resolved("cuda", stack) == "cuda"
    assert worker_tasks.resolved("auto", stack) == "cpu"
    net = type("StackNet", (), {"features": stack.features})()
    monkeypatch.setattr(worker_tasks, "no_cuda", lambda: None)
    assert worker_tasks.resolved("auto", net) == "cuda"
    assert worker_tasks.resolved("auto", stack) == "cpu"
    encoded = type("ForestStack", (), {"features": type("F", (), {"kind": "encoder"})()})()
    assert worker_tasks.resolved("auto", encoded) == "cuda"
    monkeypatch.setattr(worker_tasks, "no_cuda", lambda: "there is none")
    assert worker_tasks.resolved("auto", net) == "cpu"


def test_a_model_is_loaded_once_by_a_worker(stack):
    content = worker_tasks.content_of(stack)
    assert worker_tasks.loaded(content, "cpu") is worker_tasks.loaded(content, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "scheduler", "client", "all"])
def test_killed_processes_of_a_real_cluster(victim, stack, tmp_path):
    """A scheduler, two workers and a client as separate processes; benchmarks/bench_kills.py does more."""
    from bench_kills import IMAGE, one_kill
    from dask_processes import free_port, running

    hr.save(stack, tmp_path / "model.hedge")
    write_zarr(tmp_path / IMAGE, picture((2100, 2100)), chunks=(512, 512))
    hr.predict_large(stack, tmp_path / IMAGE, tmp_path / "whole.ome.zarr", shard=512)
    expected = listing(tmp_path / "whole.ome.zarr")
    with running(tmp_path, 2, free_port()) as processes:
        lost = one_kill(processes, victim, tmp_path, 3, expected, 512)
    assert max(lost, default=0) <= 1


def test_lost_shards_are_counted_by_worker():
    from bench_kills import lost_shards

    assert lost_shards("a 1\nb 2\na 3\nc 1\nb 1\nb 3\nc 3\n") == [3, 1]
