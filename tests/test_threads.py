"""Threads and forked processes."""

import multiprocessing
import os
import threading

import numpy as np
import pytest

import hedgerow as hr
from hedgerow.kernels.weak_cache import WeakCache

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
PATIENCE = 120  # seconds; a process that hangs does so for ever


def answer(work, sent):
    sent.send(work())


def in_a_fork(work):
    """What the function returns in a forked process; fails if that hangs or dies."""
    context = multiprocessing.get_context("fork")
    received, sent = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(work, sent))
    process.start()
    sent.close()
    if not received.poll(PATIENCE):
        process.kill()
        pytest.fail("the forked process hangs")
    found = received.recv()
    process.join()
    return found


def test_a_stack_that_was_used_predicts_in_a_fork(stack, example):
    expected = stack.predict_proba(example.images[0])
    np.testing.assert_array_equal(in_a_fork(lambda: stack.predict_proba(example.images[0])), expected)


def test_a_network_that_was_used_predicts_and_is_refined_in_a_fork(net, example):
    image = np.tile(example.images[0], (4, 4))  # large enough for PyTorch to use its threads
    settings = hr.RefineConfig(n_steps=2, held_out=0.0)
    refined = hr.refine(net, example.images, example.labels, settings)
    proba = refined.predict_proba(image)

    def again():
        return refined.predict_proba(image), hr.refine(net, example.images, example.labels, settings).predict_proba(
            image
        )

    for found in in_a_fork(again):
        np.testing.assert_array_equal(found, proba)


def test_a_network_runs_in_joblibs_processes(net, example):
    joblib = pytest.importorskip("joblib")
    expected = [net.predict(image) for image in example.images]
    with joblib.parallel_config("multiprocessing", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(net.predict)(image) for image in example.images)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


class Owner:
    pass


def test_what_is_kept_may_be_asked_for_by_many_threads():
    kept, owners, wrong = WeakCache(2), [Owner() for _ in range(3)], []

    def ask(seed):
        for i in np.random.default_rng(seed).integers(0, 15, 3000):
            owner, key = owners[i % 3], int(i // 3)
            try:
                found = kept.get(owner, key, lambda key=key, owner=owner: (id(owner), key))
            except Exception as error:  # a KeyError, when two threads removed the same oldest result
                found = error
            if found != (id(owner), key):
                wrong.append(found)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_kept_is_made_once_and_the_oldest_goes_first():
    kept, owner, made = WeakCache(2), Owner(), []
    for key in "ababcab":
        kept.get(owner, key, lambda key=key: made.append(key))
    assert made == ["a", "b", "c", "a", "b"]
