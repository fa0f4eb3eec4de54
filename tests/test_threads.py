"""Threads and forked processes."""

import multiprocessing
import os

import numpy as np
import pytest

import hedgerow as hr

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
