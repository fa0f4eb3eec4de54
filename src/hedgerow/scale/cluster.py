"""Work on many machines through Dask: one task owns one shard, and only a few more tasks than workers are known to the
scheduler at any time, however large the image is."""

import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from hedgerow import extras
from hedgerow.errors import ConfigError, HedgerowError, InputError
from hedgerow.files import one_line
from hedgerow.scale.models import loaded
from hedgerow.scale.run import Each
from hedgerow.scale.shards import Shard
from hedgerow.scale.work import Job, work_on

AHEAD = 2  # tasks for each thread of a worker that the scheduler knows
PATIENCE = 20  # seconds for a scheduler to answer
GIVEN_UP = 5  # times that Dask may give a task up, each after workers died over it, before we do
Item = TypeVar("Item")
Client = Any  # of `dask.distributed`, which has no types


@contextmanager
def connected(to: Client | str | int) -> Iterator[Client]:
    """A client: the caller's own, one of the scheduler at an address, or one of so many new processes."""
    extras.require("distributed", "more than one worker")
    import distributed

    dask: Any = distributed
    if isinstance(to, dask.Client):  # its workers may come later: some clusters start them when there is work
        yield to
        return
    if isinstance(to, str):
        _check_address(to)
        try:
            client = dask.Client(to, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as problem:
            raise InputError(
                f"there is no Dask scheduler at {to}: {one_line(problem)}; start one with `dask scheduler`, and give "
                "the address that it prints."
            ) from problem
        with client:
            _wait_for_workers(client, to)
            yield client
        return
    if to < 1:
        raise ConfigError(f"the number of workers is {to}; it must be at least 1.")
    _keep_quiet()
    before = os.environ.get("HEDGEROW_THREADS")
    os.environ["HEDGEROW_THREADS"] = "1"  # the processes are what runs side by side
    try:
        cluster = dask.LocalCluster(
            n_workers=to,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
    finally:
        if before is None:
            del os.environ["HEDGEROW_THREADS"]
        else:
            os.environ["HEDGEROW_THREADS"] = before
    with cluster, dask.Client(cluster, set_as_default=False) as client:
        yield client


def _check_address(address: str) -> None:
    """Refuse what Dask would try for a long time."""
    kind, _, place = address.rpartition("://")
    if kind in ("", "tcp", "tls") and not re.fullmatch(r".+:[0-9]+/?", place):
        raise ConfigError(
            f"the address of the Dask scheduler is {address!r}; give host and port, as `dask scheduler` prints them, "
            "e.g. tcp://host:8786."
        )


def _keep_quiet() -> None:
    """Dask tells each step of its processes; what goes wrong is told by whoever needs them."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


def carried(client: Client, content: bytes) -> Any:
    """What tasks take for `content`, which travels to each worker once.

    A task makes it: so it waits for workers to come, and is made again if those that hold it are gone.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        return client.submit(_itself, content, pure=False)


def _itself(content: bytes) -> bytes:
    return content


def on(client: Client, content: bytes, device: str) -> Each:
    """Works on shards with the workers of a client; the model travels to each of them once."""
    model = carried(client, content)

    def each(job: Job, shards: Iterable[Shard]) -> Iterator[str]:
        for _, name in side_by_side(client, _shard, shards, job, model, device):
            if isinstance(name, HedgerowError):
                raise name
            yield name

    return each


def _shard(shard: Shard, job: Job, content: bytes, device: str) -> str:
    """Work on a shard, unless it is done: the worker that did it may have died before it could say so."""
    if job.markers.is_done(shard.name):
        return shard.name
    return work_on(job, loaded(content, device), shard)


def side_by_side(
    client: Client, work: Callable[..., Any], items: Iterable[Item], *others: Any
) -> Iterator[tuple[Item, Any]]:
    """Each item with what `work(item, *others)` returned on some worker, as they are done; an error that Hedgerow tells
    is returned in place of it. A task whose worker died is given to another one."""
    import distributed

    dask: Any = distributed
    left, deaths = enumerate(items), dict[int, int]()
    waiting = dask.as_completed(loop=client.loop, raise_errors=False)
    of: dict[str, tuple[int, Item]] = {}

    def submit(number: int, item: Item) -> None:
        future = client.submit(work, item, *others, pure=False)
        of[future.key] = (number, item)
        waiting.add(future)

    def fill() -> None:
        """As many tasks as the workers of this moment have use for: they may come and go."""
        room = max(AHEAD * _n_threads(client), 1) - len(of)
        for number, item in islice(left, max(room, 0)):
            submit(number, item)

    try:
        fill()
        for future in waiting:
            number, item = of.pop(future.key)
            try:
                found = future.result()
            except HedgerowError as problem:
                found = problem
            except dask.KilledWorker as problem:
                deaths[number] = deaths.get(number, 0) + 1
                if deaths[number] == GIVEN_UP:
                    raise InputError(
                        "workers died again and again on the same task, perhaps for lack of memory; give them more, or "
                        "a smaller --tile, and the same command again to go on."
                    ) from problem
                submit(number, item)
                continue
            except (dask.CancelledError, OSError, TimeoutError) as problem:
                raise _lost(problem) from problem
            fill()
            yield item, found
        if client.status != "running":
            raise _lost(None)
    finally:
        for future in list(waiting.futures):
            future.cancel()


def _lost(problem: BaseException | None) -> InputError:
    why = f" ({one_line(problem)})" if isinstance(problem, Exception) else ""
    return InputError(
        f"the connection to the Dask scheduler was lost{why}; what is done is kept: start scheduler and workers again,"
        " and give the same command to go on."
    )


def _n_threads(client: Client) -> int:
    return sum(client.nthreads().values())


def _wait_for_workers(client: Client, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=60)
    except TimeoutError as problem:
        raise InputError(
            f"the Dask scheduler at {address} has no workers; start some with `dask worker {address}`."
        ) from problem
