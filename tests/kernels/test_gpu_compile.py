"""The GPU's kernels compile for cards from Ampere to Blackwell; the compiler needs no card for that."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton is not installed")

# Card's generation, split, whether leaves are a softmax, whether offsets are stretched by depth, whether gradients are
# to be the same in every run, and columns of the votes.
QUICK = [
    (80, "soft", False, False, False, 32),
    (90, "soft", False, False, True, 64),
]
MORE = [
    (generation, split, is_softmax, is_stretched, is_stretched, 64)
    for generation in (80, 90, 120)
    for split, is_softmax in (("hard", False), ("tanh", False), ("soft", False), ("soft", True), ("crelu", True))
    for is_stretched in (False, True)
] + [(120, "crelu", True, False, False, 16), (86, "tanh", False, True, False, 32)]

# In a process of its own: here Triton may be in its interpreter's mode.
CODE = """
import json, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from hedgerow.kernels.constants import SPLIT_KINDS
from hedgerow.kernels.gpu.level import BACKWARD, FORWARD, WHOLE, backward, forward

generation, split, settings = json.loads(sys.argv[1])
is_hard, is_fixed = split == "hard", settings["FIXED_POINT"]
settings |= {"KIND": SPLIT_KINDS[split], "WHOLE": 1.0 if is_hard else WHOLE}
types = {
    "*i32": "place spot row column slot below is_open after first split leaves opens visited is_up visit_after"
    " first_visit",
    "*fp32": "values offset stretch weight bias rooms out slope_in scales",
    "*fp16": "votes fine_votes slopes",
    "*i64" if is_fixed else "*fp64": "d_weight d_bias d_votes",
    "fp32": "leaf tolerance unit",
}
type_of = {name: kind for kind, names in types.items() for name in names.split()}
if is_hard:
    type_of |= dict.fromkeys(types["*fp16"].split(), "*fp32")
type_of["d_values"] = "*i64" if is_fixed else "*fp32"
found = {}
for kernel, shape in ((forward, FORWARD), (backward, BACKWARD)):
    constants = {name: value for name, value in settings.items() if name in kernel.arg_names} | {"P": shape.pixels}
    signature = {name: "constexpr" if name in constants else type_of.get(name, "i32") for name in kernel.arg_names}
    anywhere = {one.name for one in kernel.params if one.do_not_specialize_on_alignment}
    arrays = [n for n, name in enumerate(kernel.arg_names) if signature[name][0] == "*" and name not in anywhere]
    aligned = {(n,): [["tt.divisibility", 16]] for n in arrays}
    source = ASTSource(kernel, signature, constants, aligned)
    made = compile(source, target=GPUTarget("cuda", generation, 32), options={"num_warps": shape.warps})
    code = made.asm["ptx"]
    found[kernel.__name__] = {"shared": made.metadata.shared, "is_mma": "mma.sync" in code, "is_new": "wgmma" in code}
print(json.dumps(found))
"""

NORM = """
import json, sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from hedgerow.kernels.gpu.norm import BLOCK, VARIES, _gradient, _moments, _normalise, _slope_sums

generation, kind, channels = json.loads(sys.argv[1])
found = {}
for kernel in (_moments, _normalise, _slope_sums, _gradient):
    constants = {"P": BLOCK // channels, "M": channels}
    type_of = {"planes": kind, "slope": kind, **dict.fromkeys(VARIES, "i32"), "out": kind}
    signature = {n: "constexpr" if n in constants else type_of.get(n, "*fp32") for n in kernel.arg_names}
    made = compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", generation, 32))
    told = [one.name for one in kernel.params if one.do_not_specialize]
    found[kernel.__name__] = {"shared": made.metadata.shared, "told": told}
print(json.dumps(found))
"""

# Triton compiles anew for a number that is 1 or divides by 16 where others did not, and for an array that begins
# elsewhere in memory, unless it is told not to.
TOLD = """
import json
from hedgerow.kernels.gpu.level import backward, forward
from hedgerow.kernels.gpu.walk import _walk

kernels = (forward, backward, _walk)
told = lambda one: one.is_constexpr or one.do_not_specialize
plain = [[one.name for one in kernel.params if not told(one)] for kernel in kernels]
anywhere = [[one.name for one in kernel.params if one.do_not_specialize_on_alignment] for kernel in kernels]
print(json.dumps([plain, anywhere]))
"""
ARRAYS = (
    "values place spot offset row column stretch weight bias votes fine_votes slot below is_open after first rooms out "
    "slopes slope_in split leaves opens visited is_up visit_after first_visit d_weight d_bias d_votes d_values scales "
    "threshold child split_of leaf_of root depth"
)
OF_THE_MODEL = "n_classes leaf tolerance unit"


def in_own_process(*arguments):
    surroundings = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", *arguments]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_images_of_other_sizes_need_no_other_kernels():
    plain, anywhere = in_own_process(TOLD)
    for specialised, moving in zip(plain, anywhere, strict=True):
        assert set(specialised) <= {*ARRAYS.split(), *OF_THE_MODEL.split()}, "differs from image to image"
        assert {"row", "column"} <= set(moving), "two rows of one array: the second begins where the first ends"


@pytest.mark.parametrize(
    ("generation", "split", "is_softmax", "is_stretched", "is_fixed", "width"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE if case not in QUICK)],
)
def test_kernels_compile_for_older_and_newer_cards(generation, split, is_softmax, is_stretched, is_fixed, width):
    settings = {
        "J": 2 if is_stretched else 1, "STRETCHED": is_stretched, "DROPS": split in ("soft", "crelu"),
        "NORMALISED": is_softmax, "NEEDS_VALUES": True, "FIXED_POINT": is_fixed, "WIDTH": width,
    }  # fmt: skip
    made_kernels = in_own_process(CODE, json.dumps([generation, split, settings]))
    for kernel, compiled in made_kernels.items():
        assert compiled["is_mma"] == (split != "hard"), f"{kernel}: matrix units"
        assert not compiled["is_new"], f"{kernel} needs a Hopper card"
        assert compiled["shared"] <= 48 * 1024, f"{kernel} needs more shared memory than any card gives unasked"


@pytest.mark.parametrize(
    ("generation", "kind", "channels"),
    [
        (80, "*bf16", 32),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((90, "*fp32", 64), (120, "*bf16", 1))),
    ],
)
def test_kernels_that_normalise_compile_too(generation, kind, channels):
    for kernel, made in in_own_process(NORM, json.dumps([generation, kind, channels])).items():
        assert made["shared"] <= 48 * 1024, f"{kernel} needs more shared memory than any card gives unasked"
        assert {"n_pixels", "n_channels"} <= set(made["told"]), f"{kernel} is compiled anew for every size"
