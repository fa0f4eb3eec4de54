"""The GPU's kernels compile for cards of all generations since Ampere; the compiler needs no card for that."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed")

KINDS = {"hard": 0, "tanh": 1, "soft": 2, "crelu": 3}
# Card's generation, split, whether leaves are a softmax, and whether offsets are stretched by depth.
QUICK = [(80, "soft", False, False), (90, "soft", False, False), (120, "crelu", True, False), (86, "tanh", False, True)]
MORE = [
    (generation, split, is_softmax, is_stretched)
    for generation in (80, 90, 120)
    for split, is_softmax in (("hard", False), ("tanh", False), ("soft", False), ("soft", True), ("crelu", True))
    for is_stretched in (False, True)
]

# In a process of its own: here Triton may be in its interpreter's mode.
CODE = """
import json, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from hedgerow.ops.triton_backward import backward
from hedgerow.ops.triton_forward import forward

generation, settings, shapes = json.loads(sys.argv[1])
whole = "place spot row column slot below is_open after first split leaves opens visited is_up visit_after first_visit"
numbers = ("values offset stretch weight bias rooms out slope_in d_weight d_bias d_votes d_values scales").split()
halves = ("votes", "fine_votes", "slopes")
found = {}
for kernel, pixels in ((forward, shapes["forward"]), (backward, shapes["backward"])):
    constants = {name: value for name, value in settings.items() if name in kernel.arg_names} | {"P": pixels}
    def kind(name):
        if name in constants:
            return "constexpr"
        if name in whole.split():
            return "*i32"
        if name in halves:
            return "*fp32" if settings["WHOLE"] == 1 else "*fp16"
        if name in numbers:
            return "*fp32"
        return "fp32" if name in ("leaf", "tolerance", "one") else "i32"
    source = ASTSource(kernel, {name: kind(name) for name in kernel.arg_names}, constants)
    made = compile(source, target=GPUTarget("cuda", generation, 32), options={"num_warps": 1})
    code = made.asm["ptx"]
    found[kernel.__name__] = {"shared": made.metadata.shared, "is_mma": "mma.sync" in code, "is_new": "wgmma" in code}
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("generation", "split", "is_softmax", "is_stretched"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE if case not in QUICK)],
)
def test_kernels_compile_for_every_generation_of_cards(generation, split, is_softmax, is_stretched):
    settings = {
        "J": 2, "STRETCHED": is_stretched, "KIND": KINDS[split], "DROPS": split in ("soft", "crelu"), "WIDTH": 32,
        "NORMALISED": is_softmax, "NEEDS_VALUES": True, "FIXED_POINT": False,
        "WHOLE": 1.0 if split == "hard" else 2.0**14,
    }  # fmt: skip
    surroundings = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    given = json.dumps([generation, settings, {"forward": 64, "backward": 32}])
    done = subprocess.run(
        [sys.executable, "-c", CODE, given], env=surroundings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for kernel, made in json.loads(done.stdout).items():
        assert made["is_mma"] == (split != "hard"), f"{kernel}: matrix units"
        assert not made["is_new"], f"{kernel} needs a Hopper card"
        assert made["shared"] <= 48 * 1024, f"{kernel} needs more shared memory than any card gives unasked"
