"""Memory that is used again: only once nobody can see it any more, and not without limit."""

import gc

import numpy as np
import pytest

from hedgerow.kernels import buffers

SIZE = buffers.MIN_BYTES // 2  # numbers: twice the least


@pytest.fixture(autouse=True)
def nothing_idle():
    buffers.release()
    yield
    buffers.release()


def place(array):
    return array.ctypes.data


def test_memory_is_used_again_once_the_last_view_is_gone():
    array = buffers.empty((SIZE,))
    view, where = array.reshape(2, -1)[1, 5:], place(array)
    del array
    gc.collect()
    other = buffers.empty((SIZE,))
    assert place(other) != where, "a view still shows it"
    view[:] = 7
    other[:] = 1
    assert (view == 7).all()
    del view
    gc.collect()
    again = buffers.empty((4, SIZE // 4 - 9))
    assert place(again) == where, "a little smaller fits"
    assert again.shape == (4, SIZE // 4 - 9)
    assert again.dtype == np.float32
    assert again.flags.c_contiguous
    assert again.flags.writeable


def test_a_tensor_holds_on_to_the_memory():
    torch = pytest.importorskip("torch")
    array = buffers.empty((SIZE,))
    array[:] = 3
    tensor = torch.from_numpy(array)[1:]
    del array
    gc.collect()
    buffers.empty((SIZE,))[:] = 9
    assert (tensor == 3).all()


def test_much_larger_memory_is_not_taken():
    where = place(buffers.empty((4 * SIZE,)))
    gc.collect()
    assert place(buffers.empty((SIZE,))) != where


def test_a_little_larger_fits_and_what_is_outgrown_goes():
    where = place(buffers.empty((SIZE,)))
    gc.collect()
    assert place(buffers.empty((SIZE + SIZE // 10,))) == where
    gc.collect()
    larger = buffers.empty((SIZE + SIZE // 2,))
    assert larger.size > SIZE
    assert not buffers._idle


def test_what_is_idle_is_bounded_and_can_be_let_go(monkeypatch):
    monkeypatch.setattr(buffers, "MAX_IDLE_BYTES", 4 * 4 * SIZE)
    held = [buffers.empty((SIZE,)) for _ in range(5)]
    del held
    gc.collect()
    assert 0 < sum(memory.nbytes for memory in buffers._idle) <= buffers.MAX_IDLE_BYTES
    buffers.release()
    assert not buffers._idle


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (0, SIZE)])
def test_small_arrays_are_plain(shape):
    assert buffers.empty(shape).shape == shape
    assert buffers.empty(shape).base is None
