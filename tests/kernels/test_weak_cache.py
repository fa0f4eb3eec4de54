"""Results that are cached for as long as the object that they belong to."""

import gc
import threading

import numpy as np

from hedgerow.kernels.weak_cache import WeakCache


class Owner:
    pass


def test_results_live_as_long_as_their_owner():
    cache, owner, computed = WeakCache(most=2), Owner(), []

    def compute():
        computed.append(1)
        return len(computed)

    assert [cache.get(owner, key, compute) for key in ("a", "a", "b", "a", "c", "b")] == [1, 1, 2, 1, 3, 2]
    assert cache.get(owner, "a", compute) == 4, "the oldest went"
    del owner
    gc.collect()
    assert cache.get(Owner(), "b", compute) == 5


def test_many_threads_may_ask_at_once():
    cache, owners, wrong = WeakCache(2), [Owner() for _ in range(3)], []

    def ask(seed):
        for i in np.random.default_rng(seed).integers(0, 15, 3000):
            owner, key = owners[i % 3], int(i // 3)
            try:
                result = cache.get(owner, key, lambda key=key, owner=owner: (id(owner), key))
            except Exception as error:  # a KeyError, when two threads removed the same oldest result
                result = error
            if result != (id(owner), key):
                wrong.append(result)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_each_result_is_computed_once_and_the_oldest_goes_first():
    cache, owner, computed = WeakCache(2), Owner(), []
    for key in "ababcab":
        cache.get(owner, key, lambda key=key: computed.append(key))
    assert computed == ["a", "b", "c", "a", "b"]
