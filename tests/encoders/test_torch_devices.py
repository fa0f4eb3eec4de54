"""PyTorch's switch for the precision of a GPU's convolutions, shared by threads."""

import threading

import pytest

torch = pytest.importorskip("torch")

from hedgerow.encoders.torch_devices import full_precision


def allows_less():
    return torch.backends.cudnn.allow_tf32


def test_the_first_to_leave_does_not_turn_it_back(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    first_is_in, first_is_out, second_is_in = (threading.Event() for _ in range(3))

    def first():
        with full_precision():
            first_is_in.set()
            assert second_is_in.wait(10)
        first_is_out.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert first_is_in.wait(10)
    with full_precision():
        second_is_in.set()
        assert first_is_out.wait(10)
        assert not allows_less()
    thread.join()
    assert allows_less()


def failing():
    with full_precision():
        assert not allows_less()
        raise MemoryError


def test_it_is_turned_back_after_a_problem(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    with pytest.raises(MemoryError):
        failing()
    assert allows_less()
