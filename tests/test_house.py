"""Package rules: which package may import which, no cycles, and imports inside functions only for optional packages."""

import ast
from functools import cache
from pathlib import Path

import pytest

import hedgerow

SOURCE = Path(hedgerow.__file__).parent
ROOT = Path(__file__).parents[1]
TOP = "(top)"
# What a package may import beside itself; and all that those may import. The table of docs/contributing.md.
TABLE = {
    TOP: (),
    "images": (TOP,),
    "kernels": (TOP,),
    "encoders": (TOP,),
    "features": ("images", "kernels", "encoders"),
    "forest": ("features",),
    "network": ("forest",),
    "predict": ("network",),
    "refinement": ("predict",),
    "deep": ("refinement",),
    "io": ("deep",),
    "synthetic": ("io",),
    "export": ("io",),
    "sklearn": ("io",),
    "report": ("io",),
    "scale": ("io",),
    "jobs": ("synthetic", "export", "sklearn", "report", "scale"),
    "paint": ("jobs",),
    "cli": ("paint",),
}
# What `import hedgerow`, or an environment without the extras, must not load.
OPTIONAL = (
    "torch",
    "triton",
    "matplotlib",
    "jinja2",
    "onnx",
    "onnxruntime",
    "sklearn",
    "IPython",
    "timm",
    "starlette",
    "uvicorn",
    "websockets",
    "fsspec",
    "aiohttp",
    "distributed",
)
READERS = (
    "PIL",
    "tifffile",
    "imagecodecs",
    "roifile",
    "zarr",
    "h5py",
    "nibabel",
    "rich",
)  # each for one kind of file, or for a terminal
MAX_CHAIN = 16  # modules
# Modules that are named in a string and found at run time, and why.
NAMED = {
    "hedgerow.lazy": "public names load their modules when they are first used",
    "hedgerow.model_methods": "the methods of a model call predict/ and report/, which stand above it",
    "hedgerow.choices": "what is chosen by name is loaded when it is used",
    "hedgerow.extras": "packages of others",
    "hedgerow.network.stacknet": "the kernels of a device",
    "hedgerow.deep.unet": "the kernels of a device",
}


def modules():
    """Name -> path of every module of the package."""
    paths = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        paths[".".join(("hedgerow", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return paths


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def package_of(module):
    """The package (a key of TABLE) that a module belongs to."""
    if module == "hedgerow.__main__":  # the command line, for `python -m hedgerow`
        return "cli"
    first = module.split(".")[1] if "." in module else ""
    return first if first in TABLE else TOP


def allowed(of):
    """All packages that a package may import."""
    importable, waiting = {of}, [of]
    while waiting:
        for below in TABLE[waiting.pop()]:
            if below not in importable:
                importable.add(below)
                waiting.append(below)
    return importable


def below(tree, kinds):
    """Identities of the nodes below those of these kinds."""
    return {id(node) for above in ast.walk(tree) if isinstance(above, kinds) for node in ast.walk(above)}


def imported(tree):
    """(module, line, whether it is loaded with the module) of every import: not loaded are those inside functions and
    those for type checking, "function" and "types" instead of True."""
    inside = below(tree, ast.FunctionDef)
    for_types = {
        id(node)
        for above in ast.walk(tree)
        if isinstance(above, ast.If) and getattr(above.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(above)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            assert node.module is not None
            # A name may be a module of the package that is named.
            names = [
                full if (full := f"{node.module}.{alias.name}") in MODULES else node.module for alias in node.names
            ]
        for name in names:
            yield name, node.lineno, "function" if id(node) in inside else "types" if id(node) in for_types else True


IMPORTS = {module: list(imported(tree)) for module, tree in TREES.items()}
EDGES = [
    (module, name, line)
    for module, imports in IMPORTS.items()
    for name, line, _ in imports
    if name.split(".")[0] == "hedgerow"
]


def test_the_table_has_every_package():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders == set(TABLE) - {TOP}


def test_the_documentation_has_the_same_table():
    text = (SOURCE.parents[1] / "docs" / "contributing.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in text.splitlines() if line.startswith(("| `", "| (top)"))]
    documented = {}
    for packages, _, may in rows:
        below = () if may.strip() == "nothing" else tuple(may.strip().split(", "))
        for name in packages.replace("`", "").replace("/", "").split(","):
            documented[name.strip()] = below
    assert documented == TABLE


def test_no_package_imports_what_the_table_forbids():
    wrong = [
        f"{module}:{line} imports {name}"
        for module, name, line in EDGES
        if package_of(name) not in allowed(package_of(module))
    ]
    assert not wrong, wrong


def test_there_is_no_cycle():
    imports = {module: {name for source, name, _ in EDGES if source == module} for module in MODULES}
    done, path = set(), []

    def visit(module):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for name in sorted(imports.get(module, ())):
            visit(name)
        path.pop()
        done.add(module)

    for module in MODULES:
        visit(module)


def test_no_chain_of_imports_is_long():
    """A chain of modules, each of which imports the next, be it inside a function."""
    imports = {
        module: [name for name, _, kind in IMPORTS[module] if kind != "types" and name in MODULES] for module in MODULES
    }

    @cache
    def longest(module):
        return [module, *max(map(longest, imports[module]), key=len, default=[])]

    chain = max(map(longest, MODULES), key=len)
    assert len(chain) <= MAX_CHAIN, " -> ".join(chain)


def needs(module, packages, seen=None):
    """Whether loading a module of the package loads one of the packages."""
    seen = set() if seen is None else seen
    if module in seen:
        return False
    seen.add(module)
    for name, _, is_loaded in IMPORTS[module]:
        if is_loaded is not True:
            continue
        if name.split(".")[0] in packages or (name in TREES and needs(name, packages, seen)):
            return True
    return False


def test_imports_inside_functions_are_of_optional_packages():
    wrong = []
    for module, imports in IMPORTS.items():
        for name, line, is_loaded in imports:
            if is_loaded != "function" or name.split(".")[0] in (*OPTIONAL, *READERS):
                continue
            if name.split(".")[0] == "hedgerow" and needs(name, (*OPTIONAL, *READERS)):
                continue
            wrong.append(f"{module}:{line} imports {name}")
    assert not wrong, wrong


def test_modules_are_named_in_strings_only_where_listed():
    naming = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
        and "import_module" in (getattr(node, "id", ""), getattr(node, "attr", ""))
    }
    assert naming == set(NAMED)


def test_tables_are_written_in_one_place():
    """Where names that a spreadsheet would run as formulas are made plain text."""
    users = {module for module, imports in IMPORTS.items() if "csv" in {name for name, _, _ in imports}}
    assert users == {"hedgerow.images.object_tables", "hedgerow.images.subjects"}
    assert "writer" not in (SOURCE / "images" / "subjects.py").read_text(encoding="utf-8").lower()  # it only reads


@pytest.mark.parametrize("module", ["hedgerow", "hedgerow.forest.autocontext", "hedgerow.io.model_file"])
def test_forests_need_no_extra(module):
    assert not needs(module, OPTIONAL)


def defined(tree):
    """The names that a module defines or imports outside functions and classes."""
    inner = below(tree, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) - {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def test_what_is_imported_from_outside_the_package_is_there():
    """Benchmarks and plugins run rarely, so a wrong import could stay unnoticed for long."""
    known = {module: set(defined(tree)) for module, tree in TREES.items()}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.module}.{alias.name}"
        for folder in ("tests", "experiments", "benchmarks", "plugins")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("hedgerow.")
        for alias in node.names
        if f"{node.module}.{alias.name}" not in MODULES and alias.name not in known.get(node.module, ())
    ]
    assert wrong == []


def scopes(tree):
    """The functions and classes of a module, and the statements outside them."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    yield ast.Module([node for node in tree.body if not isinstance(node, kinds)], [])
    yield from (node for node in ast.walk(tree) if isinstance(node, kinds))


def long_lived(scope, names):
    """Which of the names a function, or another part of a module, uses over more than three lines, or gives to a
    function, a class or a field."""
    if isinstance(scope, ast.ClassDef):
        fields = [node.target.id for node in scope.body if isinstance(node, ast.AnnAssign)]
        return sorted(names.intersection([scope.name, *fields]))
    lines, named = {}, {getattr(scope, "name", "")}
    for node in ast.walk(scope):
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else None
        if name in names:
            lines.setdefault(name, []).append(node.lineno)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            named.add(node.attr)
    return sorted(names & named | {name for name, used in lines.items() if max(used) - min(used) >= 3})


def test_names_say_what_they_hold():
    """A name that would do for anything may live for three lines."""
    vague = {"found", "one", "said", "told", "thing"}
    for name in vague:
        for text in ("def f({0}):\n x = 1\n y = 2\n return {0}", "{0} = 1\n\n\nprint({0})", "class A:\n {0}: int"):
            assert any(name in long_lived(scope, vague) for scope in scopes(ast.parse(text.format(name))))
        assert not any(long_lived(scope, vague) for scope in scopes(ast.parse(f"{name} = 1\nprint({name})")))
    wrong = [
        f"{path.relative_to(ROOT)}:{getattr(scope, 'lineno', 1)} {name}"
        for folder in ("src", "tests", "experiments", "benchmarks", "plugins")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for scope in scopes(ast.parse(path.read_text()))
        for name in long_lived(scope, vague)
    ]
    assert wrong == []


def test_errors_are_sentences():
    """Each ends with a mark, or with a value, which may hold the end."""
    kinds = {"HedgerowError", "InputError", "ConfigError", "ModelError", "TableError", "Misuse"}
    wrong = []
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in kinds):
                continue
            text = node.args[0].values[-1] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if isinstance(text, ast.Constant) and not text.value.endswith((".", "?", "!")):
                wrong.append(f"{module}:{node.lineno} {text.value}")
    assert wrong == []


def test_no_file_has_more_than_400_lines():
    long = {str(path.name): n for path in MODULES.values() if (n := len(path.read_text().splitlines())) > 400}
    assert not long


# Short modules with at most one importer, and why they are not part of it.
ALONE = {
    "hedgerow.__main__": "runs `python -m hedgerow`",
    "hedgerow.jobs": "a command per module, named in jobs/__init__.py",
    "hedgerow.features": "a kind of feature per module, named in choices.py",
    "hedgerow.kernels.definition": "the reference that tests compare the kernel of the same name with",
}


def test_a_short_module_has_several_importers():
    importers = {module: {source for source, name, _ in EDGES if name == module} for module in MODULES}
    short = {
        module
        for module, path in MODULES.items()
        if path.name != "__init__.py" and len(importers[module]) < 2 and len(path.read_text().splitlines()) < 50
    }
    assert {module for module in short if not {module, module.rpartition(".")[0]} & set(ALONE)} == set()


# What a name may mean twice, and why. Kernels have the same names in each of their packages, by design.
SHARED_MODULES = {
    "protocol": "what everything in its package must offer",
    "bank": "the kernel's definition, and the features computed by it",
    "grow": "the kernel, and its only caller",
    "walk": "the kernels, and their only caller",
    "strokes": "the kernel that paints them, and the generator of them",
}
SHARED_CLASSES: dict[str, str] = {}
# Whole names of constants that would do for anything.
VAGUE_CONSTANTS = {"LARGE", "LARGEST", "SMALLEST", "MOST", "LEAST", "CELL", "CLEARLY", "LIMIT", "SIZE"}


def used_twice(names):
    """Name -> the packages that use it, of those that several use. names: (name, module) of each"""
    packages = {}
    for name, module in names:
        packages.setdefault(name, set()).add(package_of(module))
    return {name: sorted(where) for name, where in packages.items() if len(where) > 1}


def test_no_two_packages_have_modules_of_the_same_name():
    names = [(module.rsplit(".", 1)[1], module) for module, path in MODULES.items() if path.name != "__init__.py"]
    assert {name: where for name, where in used_twice(names).items() if name not in SHARED_MODULES} == {}


def test_no_two_packages_have_classes_of_the_same_name():
    names = [
        (node.name, module)
        for module, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name: where for name, where in used_twice(names).items() if name not in SHARED_CLASSES} == {}


def constants(tree):
    """The public constants of a module."""
    for node in tree.body:
        targets = getattr(node, "targets", [node.target] if isinstance(node, ast.AnnAssign) else [])
        names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        yield from (name for name in names if name.isupper() and not name.startswith("_"))


def test_a_constant_has_one_meaning():
    names = [(name, module) for module, tree in TREES.items() for name in constants(tree)]
    assert len(names) > 300
    assert used_twice(names) == {}
    assert {name for name, _ in names} & VAGUE_CONSTANTS == set()
