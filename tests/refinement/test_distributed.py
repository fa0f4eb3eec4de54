"""Several processes refine one network: the gradient of the sum, and the same network every time."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import hedgerow as hr
from hedgerow.refinement import distributed
from helpers.files import write

STEP = """
import sys, torch
from hedgerow.refinement import distributed
torch.manual_seed(0)
weights = [torch.nn.Parameter(torch.randn(*shape)) for shape in ((5, 3), (3,), (2,))]
given = torch.randn(4, 7, 5)
optimiser = torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:]}], lr=0.1)
with distributed.joined(torch.device("cpu")):
    for step in range(2):
        x = given[distributed.own(step)]
        loss = (x @ weights[0] + weights[1]).square().mean() + (weights[2].sum() if distributed.rank() == 0 else 0)
        print(distributed.stepped(optimiser, loss))
torch.save([weight.detach() for weight in weights], sys.argv[1] + str(distributed.rank()))
"""


def run_together(n, *command, folder):
    """Run a command in n processes, as torchrun starts them; their output."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    shared = {"WORLD_SIZE": n, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    processes = []
    for rank in range(n):
        own = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        processes.append(
            subprocess.Popen(command, cwd=folder, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True)
        )
    outputs = [process.communicate(timeout=200)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * n
    return outputs


def test_two_processes_follow_the_gradient_of_the_sum(tmp_path):
    outputs = run_together(2, sys.executable, "-c", STEP, str(tmp_path / "w"), folder=tmp_path)
    first, second = (torch.load(tmp_path / f"w{rank}", weights_only=True) for rank in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(*shape)) for shape in ((5, 3), (3,), (2,))]
    arguments = torch.randn(4, 7, 5)
    optimiser = torch.optim.SGD(weights, lr=0.1)
    printed = []
    for step in range(2):
        gradients, losses = [], []
        for rank in range(2):
            x = arguments[2 * step + rank]
            loss = (x @ weights[0] + weights[1]).square().mean() + (weights[2].sum() if rank == 0 else 0)
            gradients.append(torch.autograd.grad(loss, weights, allow_unused=True))
            losses.append(float(loss.detach()))
        printed.append(np.mean(losses))
        for weight, *grads in zip(weights, *gradients, strict=True):
            weight.grad = sum(grad for grad in grads if grad is not None)
        optimiser.step()
    assert all(torch.equal(a, b.detach()) for a, b in zip(first, weights, strict=True))  # to the last bit
    assert outputs[0] == outputs[1]
    np.testing.assert_allclose([float(line) for line in outputs[0].split()], printed, rtol=1e-6)


def test_alone_everything_is_as_before():
    assert (distributed.n_processes(), distributed.rank(), distributed.own(7), distributed.is_first()) == (
        1,
        0,
        7,
        True,
    )
    assert distributed.own_device("cuda") == "cuda"


def test_each_process_has_its_gpu(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert distributed.own_device("cuda") == "cuda:1"
    assert distributed.own_device("cpu") == "cpu"


@pytest.mark.slow
def test_a_network_refined_by_torchrun(tmp_path, stack, example):
    hr.save(stack, tmp_path / "model.hedge")
    for i, (image, labels) in enumerate(zip(example.images, example.labels, strict=True)):
        write(tmp_path / "images" / f"{i}.png", image)
        write(tmp_path / "labels" / f"{i}.png", labels.astype(np.uint8))
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "--no-python"]
    program = [sys.executable, "-c", "from hedgerow.cli import main; main()"]
    for name in ("a.hedge", "b.hedge"):
        arguments = ["refine", "model.hedge", "images", "labels", "-o", name, "--steps", "4"]
        finished = subprocess.run(
            [*run, *program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stderr
        assert finished.stdout.count(f"{name}: ") == 1  # one of them speaks
    assert (tmp_path / "a.hedge").read_bytes() == (tmp_path / "b.hedge").read_bytes()
    assert not list(tmp_path.glob("*.checkpoint"))
    assert hr.load(tmp_path / "a.hedge").refinements[-1].checks[-1].step == 4
