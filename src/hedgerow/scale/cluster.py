"""Connections to Dask, and tasks on its workers, e.g. growing trees; its scheduler has few tasks at any time."""

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from hedgerow import extras
from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, InputError, one_line
from hedgerow.forest.autocontext import GrowAll
from hedgerow.forest.grow import TreeTask, grow_tree
from hedgerow.forest.planes import TrainingPlanes
from hedgerow.forest.samples import Samples
from hedgerow.kernels.cpu.grow import Grown

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

TASKS_PER_THREAD = 2  # that the scheduler has at any time
TREE_TASKS_PER_THREAD = 4  # in a level of a stack: a task grows several trees, and faster workers take more tasks
PATIENCE = 20  # seconds that a scheduler may take to answer
MAX_DEATHS = 5  # the run stops when Dask has reported this often that the workers of one task died
TLS = "DASK_DISTRIBUTED__COMM__TLS__"  # prefix of the environment variables that name Dask's certificates
FILES, FILES_PER_WORKER = 32, 12  # open in this process, besides the images and results
Item = TypeVar("Item")
Client = Any  # of `dask.distributed`, which has no types
Workers = Client | str | int
"""A Dask client, the address of a Dask scheduler, or a number of processes on this machine."""


def _dask() -> Any:
    """`dask.distributed`, which is optional and has no types."""
    import distributed

    return distributed


@contextmanager
def connected(to: Workers | None) -> Iterator[Client | None]:
    """Yield a client: the caller's own, a new one of the scheduler at an address, or one of a number of new processes;
    None if there are no workers, so this process computes."""
    if to is None:
        yield None
        return
    for package in ("distributed", "cryptography"):
        extras.require(package, "more than one worker")
    dask = _dask()
    if isinstance(to, dask.Client):  # its workers may join later: some clusters start them on demand
        yield to
        return
    if isinstance(to, str):
        _check_address(to)
        client = _client_of(to)
        with client:
            _wait_for_workers(client, to)
            yield client
        return
    if to < 1:
        raise ConfigError(f"the number of workers is {to}; it must be at least 1.")
    _refuse_too_few_files(to)
    _keep_quiet()
    cluster = _local_cluster(to)
    with cluster, dask.Client(cluster, set_as_default=False) as client:
        yield client


def _local_cluster(n_workers: int) -> Any:
    """Worker processes of one thread each.

    Any client of a scheduler can run code in its workers. These accept only certificates made for this run, so that
    other users of this machine cannot connect.
    """
    dask = _dask()
    before = os.environ.get("HEDGEROW_THREADS")
    os.environ["HEDGEROW_THREADS"] = "1"  # the processes run in parallel, so each needs one thread
    try:
        return dask.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            security=dask.Security.temporary(),
        )
    except (OSError, RuntimeError) as problem:
        raise InputError(
            f"{n_workers} worker(s) could not be started ({one_line(problem)}); try fewer, or raise the limits on "
            "memory, processes (`ulimit -u`) and open files (`ulimit -n`)."
        ) from problem
    finally:
        if before is None:
            del os.environ["HEDGEROW_THREADS"]
        else:
            os.environ["HEDGEROW_THREADS"] = before


def _refuse_too_few_files(n_workers: int) -> None:
    """Raise InputError before Dask waits half a minute for workers that cannot start."""
    if resource is None:
        return
    limit, needed = resource.getrlimit(resource.RLIMIT_NOFILE)[0], FILES + FILES_PER_WORKER * n_workers
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise InputError(
            f"this process may have {limit} files open at once, and {n_workers} worker(s) need {needed}; raise the "
            f"limit with `ulimit -n {max(1024, needed)}` in the same terminal, or start fewer."
        )


def _client_of(address: str) -> Client:
    """A client of the scheduler at an address; Dask finds certificates by the environment or by its settings files."""
    dask = _dask()
    try:
        # Without certificates, a client would block this process for most of a minute.
        shown = dask.Security().get_connection_args("client")["ssl_context"]
        if address.startswith("tls://") and shown is None:
            raise ValueError("this process has no certificates")
        return dask.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError) as problem:
        if address.startswith("tls://"):
            raise InputError(
                f"the Dask scheduler at {address} cannot be reached: {one_line(problem)}; check that it is "
                f"running and that {TLS}CA_FILE, {TLS}CLIENT__CERT and {TLS}CLIENT__KEY name your certificate files."
            ) from problem
        raise InputError(
            f"there is no Dask scheduler at {address}: {one_line(problem)}; start one with `dask scheduler`, and give "
            "the address that it prints."
        ) from problem


def _check_address(address: str) -> None:
    """Refuse an address without a port, which Dask would retry for long, or with a password, which it would print."""
    kind, _, place = address.rpartition("://")
    if kind in ("", "tcp", "tls") and not re.fullmatch(r"[^@]+:[0-9]+/?", place):
        raise ConfigError(
            f"the address of the Dask scheduler is {address!r}; give host and port, as `dask scheduler` prints them, "
            "e.g. tcp://host:8786."
        )


def _keep_quiet() -> None:
    """Switch off the log of Dask; callers raise its errors."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


def broadcast(client: Client, content: bytes) -> Any:
    """An argument for tasks that stands for `content`, which is sent to each worker once.

    It is the result of a task, so Dask waits for workers, and repeats the task if the workers that have it are lost.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        return client.submit(bytes, content, pure=False)


def side_by_side(
    client: Client, work: Callable[..., Any], items: Iterable[Item], *others: Any
) -> Iterator[tuple[Item, Any]]:
    """Each item with the result of `work(item, *others)`, in the order of completion; raises the errors of the work.

    A task whose worker died is repeated on another one.
    """
    dask = _dask()
    left, deaths = enumerate(items), dict[int, int]()
    waiting = dask.as_completed(loop=client.loop, raise_errors=False)
    of: dict[str, tuple[int, Item]] = {}

    def submit(number: int, item: Item) -> None:
        future = client.submit(work, item, *others, pure=False)
        of[future.key] = (number, item)
        waiting.add(future)

    def fill() -> None:
        """Submit as many tasks as the current workers can use; workers may come and go."""
        room = max(TASKS_PER_THREAD * n_threads(client), 1) - len(of)
        for number, item in islice(left, max(room, 0)):
            submit(number, item)

    try:
        fill()
        for future in waiting:
            number, item = of.pop(future.key)
            try:
                result = future.result()
            except dask.KilledWorker as problem:
                deaths[number] = deaths.get(number, 0) + 1
                if deaths[number] == MAX_DEATHS:
                    raise InputError(
                        "several workers died on the same task, perhaps for lack of memory; give them more memory or "
                        "choose a smaller --tile, then rerun the same command to resume."
                    ) from problem
                submit(number, item)
                continue
            except (dask.CancelledError, OSError, TimeoutError) as problem:
                raise _lost(problem) from problem
            fill()
            yield item, result
        if client.status != "running":
            raise _lost(None)
    finally:
        for future in list(waiting.futures):
            future.cancel()


def _lost(problem: BaseException | None) -> InputError:
    why = f" ({one_line(problem)})" if isinstance(problem, Exception) else ""
    return InputError(
        f"the connection to the Dask scheduler was lost{why}; finished work is kept: restart the scheduler and its "
        "workers, then rerun the same command to resume."
    )


def n_threads(client: Client) -> int:
    return sum(client.nthreads().values())


def _wait_for_workers(client: Client, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=60)
    except TimeoutError as problem:
        raise InputError(
            f"the Dask scheduler at {address} has no workers; start some with `dask worker {address}`."
        ) from problem


def trees_on(client: Client) -> GrowAll:
    """Like `grow_in_turn`, but on the workers of a client; the planes are sent to each worker once per level.

    A tree depends on its seed and its data, not on where it is grown: the model equals the one that a single process
    grows, to the last byte.
    """
    return partial(_grow_all, client)


def _grow_all(
    client: Client,
    tasks: Sequence[TreeTask],
    planes: TrainingPlanes,
    samples: Samples,
    n_classes: int,
    config: StackConfig,
) -> Iterator[tuple[int, Grown]]:
    client.submit(int, pure=False).result()  # wait for a worker: without one, nothing can be sent
    read = client.scatter((planes, samples), broadcast=True, hash=False)
    size = -(-len(tasks) // max(TREE_TASKS_PER_THREAD * n_threads(client), 1))
    numbered = list(enumerate(tasks))
    batches = [numbered[first : first + size] for first in range(0, len(tasks), size)]
    for batch, trees in side_by_side(client, _grow_trees, batches, read, n_classes, config):
        for (number, _), tree in zip(batch, trees, strict=True):
            yield number, tree


def _grow_trees(
    batch: Sequence[tuple[int, TreeTask]], read: tuple[TrainingPlanes, Samples], n_classes: int, config: StackConfig
) -> list[Grown]:
    return [grow_tree(task, *read, n_classes, config) for _, task in batch]
