"""Nobody without the certificates reaches the processes of a cluster; and limits on open files are explained."""

import asyncio
import os
import subprocess
import sys

import pytest

import hedgerow as hr
from hedgerow.errors import InputError
from hedgerow.scale import cluster
from helpers.files import listing
from helpers.large import picture, write_zarr
from helpers.refusals import assert_one_sentence
from helpers.servers import in_thread

distributed = pytest.importorskip("distributed")
pytest.importorskip("cryptography")
from distributed.core import connect

from dask_processes import free_port, running


def is_let_in(address, security, timeout=5):
    """Whether Dask's own handshake with a process succeeds."""

    async def attempt():
        comm = await connect(address, timeout=timeout, **security.get_connection_args("client"))
        await comm.close()

    try:
        in_thread(lambda: asyncio.run(attempt()))
    except (OSError, TypeError, RuntimeError):
        return False
    return True


def test_processes_of_this_machine_ask_for_a_certificate():
    with cluster.connected(1) as client:
        worker, described = next(iter(client.scheduler_info()["workers"].items()))
        addresses = client.scheduler.address, worker, described["nanny"]
        own, others, none = client.security, distributed.Security.temporary(), distributed.Security()
        for address in addresses:
            assert address.startswith("tls://127.0.0.1:")
            assert is_let_in(address, own, timeout=120)
            assert not is_let_in(address, others)
            assert not is_let_in(address, none)
            assert not is_let_in(address.replace("tls://", "tcp://"), none)
        assert client.submit(abs, -3).result(timeout=120) == 3


def certificates(folder):
    """Options for scheduler and workers, and variables for the command: all have one certificate."""
    made = distributed.Security.temporary()
    for name, text in (("cert.pem", made.tls_ca_file), ("key.pem", made.tls_client_key)):
        (folder / name).write_text(text)
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    options = ["--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key]
    return options, {f"{cluster.TLS}{name}": path for name, path in (
        ("CA_FILE", cert), ("CLIENT__CERT", cert), ("CLIENT__KEY", key))}  # fmt: skip


@pytest.mark.slow
def test_a_cluster_with_certificates(stack, tmp_path):
    hr.save(stack, tmp_path / "model.hedge")
    write_zarr(tmp_path / "image.zarr", picture())
    hr.predict_large(stack, tmp_path / "image.zarr", tmp_path / "whole.ome.zarr")
    options, variables = certificates(tmp_path)
    with running(tmp_path, 1, free_port(), options) as processes:
        assert processes.address.startswith("tls://")
        command = [sys.executable, "-m", "hedgerow", "predict", "model.hedge", "image.zarr", "-o"]

        def predict(output, environment):
            return subprocess.run(
                [*command, output, "--cluster", processes.address],
                cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip

        (tmp_path / "other").mkdir()
        without, missing, others = (
            predict("b.ome.zarr", given)
            for given in ({}, dict.fromkeys(variables, "none.pem"), certificates(tmp_path / "other")[1])
        )
        finished = predict("a.ome.zarr", variables)
    assert finished.returncode == 0, finished.stderr
    assert listing(tmp_path / "a.ome.zarr") == listing(tmp_path / "whole.ome.zarr")
    for refused in (without, missing, others):
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
        assert f"{cluster.TLS}CLIENT__KEY" in refused.stderr
        assert processes.address in refused.stderr


def test_a_limit_on_open_files_is_explained():
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))
    try:
        with pytest.raises(InputError) as problem, cluster.connected(2):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert_one_sentence(problem, "32 files", "ulimit -n 1024")


def test_what_a_worker_needs_is_enough():
    """The limit that the message recommends suffices."""
    before = len(os.listdir("/dev/fd"))
    with cluster.connected(1):
        item = len(os.listdir("/dev/fd"))
    with cluster.connected(3):
        three = len(os.listdir("/dev/fd"))
    assert three - item <= 2 * cluster.FILES_PER_WORKER
    assert item - before <= cluster.FILES + cluster.FILES_PER_WORKER
