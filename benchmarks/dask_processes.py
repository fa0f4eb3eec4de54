"""A Dask scheduler, its workers and a client as separate processes, as on a cluster; all can be killed.

Used by the benchmark that kills them and by a test.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 90  # seconds until something must have happened


@dataclass
class Cluster:
    """The processes of a cluster in a folder; the scheduler has the same address after a restart.

    tls: options that name the certificates; none: nothing is encrypted
    begun: where workers note the shards that they begin, with their own number
    """

    folder: Path
    port: int
    tls: Sequence[str] = ()
    scheduler: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def begun(self) -> Path:
        return self.folder / "begun.txt"

    @property
    def address(self) -> str:
        return f"{'tls' if self.tls else 'tcp'}://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        options = [
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--no-dashboard",
            *["--protocol", "tls"] * bool(self.tls),
        ]
        self.scheduler = self._start("scheduler", [*options])
        _wait_for_text(self.folder / "scheduler.log", re.escape(f"127.0.0.1:{self.port}"))

    def start_worker(self) -> None:
        counting = ["--preload", str(Path(__file__).with_name("dask_counting.py"))]
        options = [self.address, "--nthreads", "1", "--no-dashboard", "--no-nanny", "--death-timeout", "60"]
        self.workers.append(self._start("worker", [*options, "--local-directory", str(self.folder), *counting]))

    def _start(self, program: str, options: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "HEDGEROW_THREADS": "1", "HEDGEROW_SHARDS_BEGUN": str(self.begun)}
        with open(self.folder / f"{program}.log", "wb") as log:
            command = [sys.executable, "-m", f"distributed.cli.dask_{program}", *options, *self.tls]
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def wait_for_workers(self) -> None:
        """Wait until the workers have ended, as they do by themselves without a scheduler."""
        for worker in self.workers:
            worker.wait(timeout=PATIENCE)
        self.workers.clear()

    def stop(self) -> None:
        for process in (*self.workers, self.scheduler):
            if process is not None:
                kill(process)
        self.workers.clear()
        self.scheduler = None


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9"""
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()


@contextmanager
def running(folder: Path, n_workers: int, port: int, tls: Sequence[str] = ()) -> Iterator[Cluster]:
    """A scheduler and some workers, killed at the end of the block."""
    cluster = Cluster(folder, port, tls)
    try:
        cluster.start_scheduler()
        for _ in range(n_workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.stop()


def client(address: str, folder: Path, image: str, result: str, shard: int) -> subprocess.Popen[bytes]:
    """A prediction with the workers of a scheduler, in its own process."""
    given = f"'model.hedge', {image!r}, {result!r}, shard={shard}, client={address!r}"
    code = f"import hedgerow as hr; hr.predict_large({given})"
    with open(folder / "client.log", "ab") as log:
        return subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=log, stderr=log)


def n_done(result: Path) -> int:
    """The number of shards of a result that are marked as done."""
    return len(list((result / ".hedgerow-unfinished").glob("done-*")))


def wait_until_done(result: Path, n: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until this number of shards is done, or the process has ended."""
    end = time.monotonic() + PATIENCE
    while n_done(result) < n and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)


def _wait_for_text(path: Path, pattern: str) -> None:
    end = time.monotonic() + PATIENCE
    while not re.search(pattern, path.read_text()):
        if time.monotonic() > end:
            raise TimeoutError(f"{path} does not tell {pattern}")
        time.sleep(0.05)


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
