"""The export to C: the compiled code gives Python's own labels, from its own features and from Python's."""

import ctypes
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hedgerow.errors import InputError, ModelError
from hedgerow.export import c as module
from hedgerow.export.c import export_c
from hedgerow.images.array_checks import to_planes
from hedgerow.progress import silent
from helpers.c_models import CASES, STRICT, build, compile_c, compiler, picture, pointer, stack_of
from helpers.forests import GROWN, grown_stack
from helpers.refusals import assert_one_sentence, assert_refused

SIZES = [(1, 1), (1, 9), (11, 1), (7, 13), (40, 31)]
DOCS = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
C_PART = DOCS.split("## ONNX")[0]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return build(tmp_path_factory.mktemp("c"), CASES)


def assert_equals_python(found, stack, image):
    """Labels at every pixel; probabilities too, where they do not hang on the processor or the C library."""
    labels, proba = found
    expected = stack.predict_proba(image, progress=silent)
    np.testing.assert_array_equal(labels, stack.predict(image, progress=silent))
    is_exact = not stack.is_soft and stack.output == "normalise"
    np.testing.assert_allclose(proba, expected, rtol=0, atol=0 if is_exact else 2e-6)


@pytest.mark.parametrize("case", CASES)
def test_labels_are_pythons(case, compiled):
    model = compiled[case]
    for size in SIZES:
        image = picture(model.stack, *size)
        assert_equals_python(model.predict(image), model.stack, image)
        assert_equals_python(model.predict_features(image), model.stack, image)
    if case != "leaves_alone":
        assert len(np.unique(model.predict(image)[1], axis=None)) > len(model.stack.classes), "nothing was decided"


@pytest.mark.parametrize("kind", GROWN)
def test_labels_of_an_image_like_those_that_were_learned_from(kind, compiled):
    stack, image = grown_stack(kind)
    assert_equals_python(compiled[kind].predict(image), stack, image)


def test_features_alone_fed_by_the_caller(compiled, tmp_path):
    names = ("offsets", "windows", "depth_windows", "soft_depth")
    for name, model in build(tmp_path, names, filters=False).items():
        image = picture(model.stack, 9, 14)
        assert_equals_python(model.predict_features(image), model.stack, image)
        assert "_predict(" not in model.header
        features = 4 * 9 * 14 * model.stack.features.n_features
        assert model.workspace_size(9, 14) <= compiled[name].workspace_size(9, 14) - features


def test_standardise(compiled):
    model = compiled["channels"]
    planes = picture(model.stack, 6, 5)
    features = planes.copy()
    model.function("standardise")(pointer(features), 6, 5)
    np.testing.assert_array_equal(features, model.stack.features.compute(planes))


def test_parts_that_overlap_give_the_labels_of_the_whole(compiled):
    model = compiled["windows"]
    image = picture(model.stack, 120, 11)
    whole, margin = model.predict(image)[0], model.stack.receptive_field
    assert f"#define WINDOWS_RECEPTIVE_FIELD {margin}\n" in model.header
    assert 2 * margin < 120
    upper, lower = model.predict(image[: 60 + margin])[0], model.predict(image[60 - margin :])[0]
    np.testing.assert_array_equal(np.concatenate([upper[:60], lower[margin:]]), whole)


@pytest.mark.parametrize(
    ("height", "width"), [(0, 4), (4, 0), (-3, 4), (4, -3), (2**24 + 1, 1), (2**31 - 1, 2**31 - 1)]
)
def test_sizes_out_of_range_are_refused(height, width, compiled):
    model, some = compiled["offsets"], np.zeros(4, np.float32)
    assert model.workspace_size(height, width) == 0
    arguments = (pointer(some), height, width, None, None, pointer(some))
    assert model.function("predict")(*arguments) == 1
    assert model.function("predict_features")(*arguments) == 1
    model.function("standardise")(pointer(some), height, width)
    assert not some.any()


def test_what_is_missing_is_refused(compiled):
    some = pointer(np.zeros(100_000, np.float32))
    for name in ("predict", "predict_features"):
        assert compiled["offsets"].function(name)(None, 2, 2, None, None, some) == 1
        assert compiled["offsets"].function(name)(some, 2, 2, None, None, None) == 1
    assert compiled["depth"].function("predict_features")(some, None, 2, 2, None, None, some) == 1
    assert compiled["depth"].function("predict")(some, 2, 2, None, None, some) == 0  # only labels and proba may be


def test_class_values_stand_in_the_library(compiled):
    model = compiled["other_classes"]
    values = (ctypes.c_int32 * 3).in_dll(model.library, "other_classes_class_values")
    assert tuple(values) == model.stack.classes


DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include "m.h"
int main(int count, char **given) {
    int height = atoi(given[count - 2]), width = atoi(given[count - 1]);
    size_t pixels = (size_t)height * (size_t)width, n = M_CHANNELS * pixels;
    float *image = malloc(n * sizeof *image), *proba = malloc(M_CLASSES * pixels * sizeof *proba);
    void *labels = malloc(pixels * sizeof(m_label)), *workspace = malloc(m_workspace(height, width));
    if (fread(image, sizeof *image, n, stdin) != n) return 1;
    if (m_predict(image, height, width, labels, proba, workspace) != 0) return 1;
    if (fwrite(labels, sizeof(m_label), pixels, stdout) != pixels) return 1;
    free(image); free(proba); free(labels); free(workspace);
    return 0;
}
"""


@pytest.mark.parametrize("case", ["soft_depth_windows", "far", "some_leaves_alone"])
def test_nothing_is_read_or_written_out_of_range(case, tmp_path):
    """Under the compiler's own watch; not even where pixels are NaN or infinite."""
    watch = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    made = subprocess.run([compiler(), *watch, probe, "-o", tmp_path / "probe"], capture_output=True)
    if made.returncode or subprocess.run([tmp_path / "probe"], capture_output=True).returncode:
        pytest.skip("the compiler has no address sanitizer here")
    stack = stack_of(case)
    source, _ = export_c(stack, tmp_path / "m.c", "m")
    (tmp_path / "main.c").write_text(DRIVER)
    program = tmp_path / "watched"
    compile_c("-O1", *watch, tmp_path / "main.c", source, "-o", program, "-lm")
    for height, width in SIZES:
        image = picture(stack, height, width)
        planes = to_planes(image, layout=stack.features.layout)
        for spoiled in (False, True):
            if spoiled:
                planes = planes.copy()
                planes.reshape(-1)[:3] = [np.nan, np.inf, -np.inf][: planes.size]
            done = subprocess.run([program, str(height), str(width)], input=planes.tobytes(), capture_output=True)
            assert done.returncode == 0, done.stderr.decode()[:2000]
            if not spoiled:
                labels = np.frombuffer(done.stdout, np.uint8).reshape(height, width)
                np.testing.assert_array_equal(labels, stack.predict(image, progress=silent))


def test_the_documented_example_runs(hedgerow, stack, model_file, tmp_path, monkeypatch):
    compiler()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.hedge").write_bytes(model_file.read_bytes())
    export, compile_line = re.search(r"```sh\n(hedgerow .*)\n(cc .*)\n```", C_PART).groups()
    assert hedgerow(*export.split()[1:]).code == 0
    example = re.search(r"```c\n(.*?)```", C_PART, flags=re.DOTALL)[1]
    assert len(example.splitlines()) == 10
    (tmp_path / "main.c").write_text(example)
    command = compile_line.replace("-O3", "-O3 -Wall -Wextra -Werror").split()
    subprocess.run(command, check=True, timeout=120)
    height, width = map(int, re.search(r"image\[(\d+) \* (\d+)\]", example).groups())
    image = np.random.default_rng(0).integers(0, 256, (height, width)).astype(np.uint8)
    image.astype("float32").tofile("image.raw")
    run_line = re.search(r"```sh\n(\./segment .*)\n```", C_PART)[1]
    subprocess.run(run_line, shell=True, check=True, timeout=60)
    labels = np.fromfile("labels.raw", np.uint8).reshape(height, width)
    np.testing.assert_array_equal(labels, stack.predict(image, progress=silent))


def test_the_header_is_good_for_cpp_too(tmp_path):
    _, header = export_c(stack_of("depth"), tmp_path / "m.c")
    (tmp_path / "main.cpp").write_text('#include "m.h"\nint main() { return m_workspace(1, 1) == 0; }\n')
    done = subprocess.run(
        [compiler(), "-x", "c++", "-fsyntax-only", *STRICT[1:], header.with_name("main.cpp")], capture_output=True
    )
    if b"c++" in done.stderr and b"cc1plus" in done.stderr:
        pytest.skip("the compiler does not know C++")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", ["offsets", "soft_depth"])
def test_the_same_bytes_every_time_and_nothing_allocated(case, tmp_path):
    first = [path.read_bytes() for path in export_c(stack_of(case), tmp_path / "m.c")]
    second = [path.read_bytes() for path in export_c(stack_of(case), tmp_path / "m.c")]
    assert first == second
    source = first[0].decode()
    assert "alloc" not in source
    assert set(re.findall(r"#include (\S+)", source)) == {'"m.h"', "<math.h>", "<string.h>"}
    assert not re.findall(r"^static (?!const)\w+ \w+(?:\[|;| =)", source, flags=re.MULTILINE), "a variable is kept"
    assert str(tmp_path) not in source


@pytest.mark.parametrize("name", ["", "1st", "a-b", "a b", "_a", "é", "a\n", 'a"', "a/b", "a" * 41, "int main()"])
def test_names_that_c_cannot_have_are_refused(name, tmp_path):
    with pytest.raises(InputError) as problem:
        export_c(stack_of("channels"), tmp_path / "m.c", name=name)
    assert_one_sentence(problem, repr(name), "letters")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", ["m.h", "m", "m.cpp", 'm".c', "m\n.c", "m?.c", ".c"])
def test_file_names_that_c_cannot_include_are_refused(file, tmp_path):
    with pytest.raises(InputError) as problem:
        export_c(stack_of("channels"), tmp_path / file)
    assert_one_sentence(problem, ".c")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "name"),
    [("fac.c", "fac"), ("my model-2.c", "my_model_2"), ("3.c", "model_3"), ("_.c", "model"), ("é.c", "model"),
     ("a" * 60 + ".c", "a" * 40), ("int.c", "int")],
)  # fmt: skip
def test_names_begin_with_that_of_the_file(file, name, hedgerow, model_file, tmp_path):
    finished = hedgerow("export", model_file, "--to", "c", "-o", tmp_path / file)
    assert finished.code == 0, finished.err
    assert f"names begin with {name}_" in finished.out
    header = (tmp_path / file).with_suffix(".h").read_text()
    assert f" {name}_predict(" in header
    compile_c("-O0", "-fsyntax-only", tmp_path / file)


@pytest.mark.parametrize("name", ["int", "n", "split", "levels", "x86"])
def test_names_that_are_words_of_the_runtime_are_fine(name, tmp_path):
    source, _ = export_c(stack_of("channels"), tmp_path / "a model.c", name=name)
    compile_c("-O0", "-fsyntax-only", source)


def test_a_damaged_stack_is_refused(tmp_path):
    stack = stack_of("channels")
    broken = replace(stack.levels[0], left_child=stack.levels[0].left_child + 1)
    with pytest.raises(ModelError):
        export_c(replace(stack, levels=(broken, *stack.levels[1:])), tmp_path / "m.c")
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_both_files_as_they_were(tmp_path, monkeypatch):
    for ending in ("c", "h"):
        (tmp_path / f"m.{ending}").write_text("before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_header", fail)
    with pytest.raises(InputError) as problem:
        export_c(stack_of("channels"), tmp_path / "m.c")
    assert_one_sentence(problem, "m.", "space")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"m.c": "before", "m.h": "before"}


def test_a_header_that_cannot_be_written_keeps_the_source_back(tmp_path):
    (tmp_path / "m.h").mkdir()
    with pytest.raises(InputError) as problem:
        export_c(stack_of("channels"), tmp_path / "m.c")
    assert_one_sentence(problem, "m.h")
    assert [path.name for path in tmp_path.iterdir()] == ["m.h"]


def test_the_command_writes_both_files_and_says_how_to_compile(hedgerow, model_file, tmp_path):
    finished = hedgerow("export", model_file, "--to", "c", "-o", tmp_path / "leaf.c", "--name", "leaf")
    assert finished.code == 0
    assert f"{tmp_path / 'leaf.c'}: " in finished.out
    assert f"{tmp_path / 'leaf.h'}: " in finished.out
    assert "-ffp-contract=off" in finished.out
    assert "int leaf_predict(" in (tmp_path / "leaf.h").read_text()
    assert hedgerow("export", model_file, "--to", "c", "-o", tmp_path / "leaf.c", "--no-filters").code == 0
    assert "_predict(" not in (tmp_path / "leaf.h").read_text()


def test_without_a_name_the_files_lie_beside_the_model(hedgerow, model_file, tmp_path):
    (tmp_path / "m.hedge").write_bytes(model_file.read_bytes())
    assert hedgerow("export", tmp_path / "m.hedge", "--to", "c").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"m.hedge", "m.c", "m.h"}


def test_the_command_refuses_what_cannot_be(hedgerow, model_file, tmp_path):
    to_c = ("export", model_file, "--to", "c", "-o")
    assert_refused(hedgerow(*to_c, tmp_path / "none" / "m.c"), "none", "make it first")
    assert_refused(hedgerow(*to_c, tmp_path), tmp_path, "folder")
    assert_refused(hedgerow(*to_c, model_file), model_file, "another name")
    assert_refused(hedgerow(*to_c, tmp_path / "m.c", "--name", "no-name"), "no-name", "letters")
    assert_refused(hedgerow("export", model_file, "--to", "onnx", "--name", "leaf"), "--name", "leave it out")
    assert_refused(hedgerow("export", tmp_path / "none.hedge", "--to", "c"), "none.hedge")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(hedgerow, model_file, tmp_path):
    tmp_path.chmod(0o500)
    assert_refused(hedgerow("export", model_file, "--to", "c", "-o", tmp_path / "m.c"), tmp_path)


def test_a_network_is_refused_with_the_remedy(net, tmp_path):
    with pytest.raises(InputError) as problem:
        export_c(net, tmp_path / "m.c")
    assert_one_sentence(problem, "network", "hedgerow back")
    assert not list(tmp_path.iterdir())
