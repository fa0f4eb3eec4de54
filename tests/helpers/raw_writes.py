"""Finds code that writes or deletes files past the guard (`files`, `temporary`, `overwrite_guard`).

A write is guarded if its target is a temporary path or file, that is a name which a function binds in one of these ways
and in no other:

    with atomic_path(...) as NAME        and temporary_file, temporary_folder; tempfile.TemporaryFile and the like
    with open(NAME, ...) as FILE         of a guarded NAME; ZipFile and TiffWriter, too
    FILE = io.BytesIO()
    def write(temporary, ...)            then every call must hand over a guarded name

Nothing guards a delete or a rename: only the guard itself does those.
"""

import ast
import re
from dataclasses import dataclass, field

GUARDS = {
    "hedgerow.files": {"atomic_path"},
    "hedgerow.temporary": {"temporary_file", "temporary_folder"},
    "tempfile": {"TemporaryFile", "NamedTemporaryFile", "TemporaryDirectory", "SpooledTemporaryFile"},
}
PARAMETER = "temporary"
RECEIVER = -1
# Where a call has what it writes to: the argument of this number, or what the method belongs to.
TARGETS = {
    "write_text": RECEIVER,
    "write_bytes": RECEIVER,
    "touch": RECEIVER,
    "copyfile": 1,
    "copyfileobj": 1,
    "copy2": 1,
    "save_file": 1,
    "imwrite": 0,
    "imsave": 0,
    "savez": 0,
    "savez_compressed": 0,
    "savetxt": 0,
    "savefig": 0,
    "tofile": 0,
    "TiffWriter": 0,
    "FileIO": 0,
    "open_memmap": 0,
}
NEVER = {
    *("unlink", "rmdir", "rmtree", "removedirs", "renames", "copytree", "symlink_to", "hardlink_to", "pipe_file"),
    *("extractall", "urlretrieve", "FileHandler", "to_zarr", "write_html", "to_csv", "to_parquet", "to_hdf"),
    *("put_file", "cp_file", "rm_file", "get_writer", "imopen", "mkfifo", "mknod", "mv", "save_model"),
}
OF_MODULES = {  # names that mean something else elsewhere
    "os": {"remove", "rename", "replace", "truncate", "ftruncate", "open", "link", "symlink", "posix_fallocate"}
    | {"system", "popen", "fdopen"},
    "subprocess": {"run", "Popen", "call", "check_call", "check_output"},  # may run anything
    "sqlite3": {"connect"},
    "shelve": {"open"},
    "dbm": {"open"},
    "pickle": {"dump"},
    "torch.onnx": {"export"},
    "shutil": {"move", "copy", "copymode", "copystat", "make_archive", "unpack_archive"},
    "pathlib.Path": {"rename", "replace"},
    "hedgerow.temporary": {"remove", "temporary_in", "sweep", "exchanged"},  # no guard by themselves
}
ZARR_READS = {"open", "open_group", "open_array", "open_consolidated"}  # with the mode "r"
ZARR = {"save", "group", "array", "full", "zeros", "ones", "empty", "copy", "copy_all", "copy_store", "tree"}
_ZARR = re.compile("(create|save|open|from|full|zeros|ones|empty|consolidate)_[a-z_]+|create")
OPENS = {"open", "ZipFile", "TarFile", "memmap", "GzipFile", "BZ2File", "LZMAFile"}  # take a mode
_ANY = NEVER | set(TARGETS) | set().union(*OF_MODULES.values()) - {"open", "run", "call", "export", "connect", "dump"}
_MODE = re.compile(r"[rwaxbtU+c]{1,4}([:|][a-z0-9]*)?")
_WRITES = re.compile(r"[wax+]")


@dataclass
class Finding:
    line: int
    name: str

    def __str__(self):
        return f"line {self.line}: {self.name}"


@dataclass
class Module:
    """The tree of a module, and where its names come from: name -> (module, name in it)."""

    tree: ast.Module
    origins: dict[str, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, source):
        return cls(ast.parse(source))

    def __post_init__(self):
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.split(".")[0]
                    self.origins[alias.asname or first] = (alias.name if alias.asname else first, "")
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.origins[alias.asname or alias.name] = (node.module or "", alias.name)

    def origin(self, function):
        """(module, name) of what is called or named; the module is empty for a method or a name of this module."""
        if isinstance(function, ast.Name):
            return self.origins.get(function.id, ("", function.id))
        if isinstance(function, ast.Attribute):
            where, name = self.origin(function.value)
            is_imported = where or (isinstance(function.value, ast.Name) and function.value.id in self.origins)
            return ".".join(filter(None, (where, name))) if is_imported else "", function.attr
        return "", ""


def takers(module):
    """Function -> place of the parameter `temporary`, of those that have one; that of methods is after `self`."""
    result = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef):
            names = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
            if PARAMETER in names:
                result[node.name] = names.index(PARAMETER) - (names[0] == "self")
            elif PARAMETER in [item.arg for item in node.args.kwonlyargs]:
                result[node.name] = None
    return result


def raw_writes(source, also_takers=()):
    """What in a source writes or deletes past the guard. also_takers: functions of other modules, see `takers`"""
    module = Module.of(source)
    found = _Finder(module, {**dict(also_takers), **takers(module)})
    found.visit(module.tree)
    return found.findings


class _Finder(ast.NodeVisitor):
    def __init__(self, module, known_takers):
        self.module, self.takers = module, known_takers
        self.findings, self.guarded, self.called = [], set(), set()

    def add(self, node, name):
        self.findings.append(Finding(node.lineno, name))

    def visit_FunctionDef(self, node):
        outside = self.guarded
        self.guarded = (outside - _bound(node)) | guarded_names(node, self.module, outside)
        self.generic_visit(node)
        self.guarded = outside

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        outside, own = self.guarded, {one.arg for one in (*node.args.posonlyargs, *node.args.args)}
        self.guarded = outside - own
        self.generic_visit(node)
        self.guarded = outside

    def visit_Module(self, node):
        self.generic_visit(node)

    def visit_Call(self, node):
        self.called.add(id(node.func))
        where, name = self.module.origin(node.func)
        if name == "getattr" and len(node.args) > 1 and _text(node.args[1]) in _ANY:
            self.add(node, f"getattr of {_text(node.args[1])}")
        elif name in self.takers and (not where or where.startswith("hedgerow")):
            self._check_taker(node, name)
        elif where.startswith("hedgerow") or (name == "save" and where.startswith("safetensors")):
            pass  # guarded there; bytes
        elif name in TARGETS:
            self._check_target(node, name, TARGETS[name])
        elif where == "zarr" and (name in ZARR | ZARR_READS or _ZARR.fullmatch(name)):
            if name not in ZARR_READS or not _is_read_only(node, None):
                self._check_target(node, f"zarr.{name}", 0)
        elif name in OPENS and where != "os":
            self._check_open(node, where, name)
        elif name == "save" and (node.args or node.keywords) and not _is_of_self(node.func):
            self._check_target(node, name, 0)
        elif isinstance(node.func, ast.Attribute) and not where:
            # `Path.rename` and `Path.replace` take one path, `str.replace` two texts, and `rm` is of remote systems.
            takes_path = [one.arg for one in node.keywords] in ([], ["target"]) and len(node.args + node.keywords) == 1
            if (name in ("rename", "replace") and takes_path) or name in ("truncate", "rm"):
                self._check_target(node, name, RECEIVER if name == "truncate" else None)
        self.generic_visit(node)

    def visit_ImportFrom(self, node):
        if any(alias.name == "*" for alias in node.names):
            self.add(node, f"all names of {node.module}")

    def visit_Attribute(self, node):
        where, name = self.module.origin(node)
        if name in NEVER or name in OF_MODULES.get(where, ()):
            self.add(node, name)
        elif name in TARGETS and id(node) not in self.called and not where.startswith("hedgerow"):
            self.add(node, f"{name}, not called")
        self.generic_visit(node)

    def visit_Name(self, node):
        where, name = self.module.origin(node)
        if where and isinstance(node.ctx, ast.Load) and (name in NEVER or name in OF_MODULES.get(where, ())):
            self.add(node, name)
        elif isinstance(node.ctx, ast.Load) and node.id in self.takers and id(node) not in self.called:
            self.add(node, f"{node.id}, not called")

    def _is_guarded(self, node):
        return _is_guarded(node, self.guarded, self.module)

    def _check_target(self, node, name, place):
        if place == RECEIVER:
            target = node.func.value if isinstance(node.func, ast.Attribute) else None
        else:
            target = node.args[place] if place is not None and len(node.args) > place else None
        if target is None or not self._is_guarded(target):
            self.add(node, name)

    def _check_taker(self, node, name):
        place = self.takers[name]
        handed = [one.value for one in node.keywords if one.arg == PARAMETER]
        if not handed and place is not None and len(node.args) > place:
            handed = [node.args[place]]
        if not handed or not self._is_guarded(handed[0]):
            self.add(node, name)

    def _check_open(self, node, where, name):
        if name == "open" and isinstance(node.func, ast.Attribute):  # Path.open, Image.open, open of a remote system
            modes = [*node.args, *(one.value for one in node.keywords if one.arg == "mode")]
            writes = any(_MODE.fullmatch(_text(one) or "") and _WRITES.search(_text(one)) for one in modes)
            unknown = [one.value for one in node.keywords if one.arg == "mode"]
            if len(node.args) == 1 and not where:  # of a path, this is the mode
                unknown += node.args
            if writes or any(_text(mode) is None for mode in unknown):
                self._check_target(node, name, RECEIVER if not where else 0)
        elif not _is_read_only(node, {"memmap": 2}.get(name, 1), "r+" if name == "memmap" else "r"):
            self._check_target(node, name, 0)


def _is_of_self(function):
    """Whether it is a method of the class that calls it."""
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "self"


def _text(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_read_only(node, place, default=None):
    """Whether the mode of a call that opens something is known, and reads."""
    if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
        return False
    given = [one.value for one in node.keywords if one.arg == "mode"]
    if not given and place is not None and len(node.args) > place:
        given = [node.args[place]]
    mode = _text(given[0]) if given else default
    return mode is not None and not _WRITES.search(mode)


def _is_guarded(node, guarded, module):
    """A guarded name, or a path inside the folder that it names: `temporary / "part"`, `Path(temporary) / "part"`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_guarded(node.left, guarded, module)
    if isinstance(node, ast.Call) and module.origin(node.func) == ("pathlib", "Path") and len(node.args) == 1:
        return _is_guarded(node.args[0], guarded, module)
    return isinstance(node, ast.Name) and node.id in guarded


def _inside(function):
    """The nodes of a function, but for those of functions in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _inside(child)


def _bound(function):
    """All names that a function binds, its parameters too."""
    names = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    stored = {one.id for one in _inside(function) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    return names | stored


def guarded_names(function, module, outside=frozenset()):
    """The names that a function binds to temporary paths and files, and to nothing else."""
    result = {item.arg for item in ast.walk(function.args) if isinstance(item, ast.arg) and item.arg == PARAMETER}
    known = {}  # id of the node that binds a name to something temporary
    for node in _inside(function):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            if _makes_temporary(node.context_expr, result | outside, module):
                result.add(node.optional_vars.id)
                known[id(node.optional_vars)] = node.optional_vars.id
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_in_memory(node, module):
            result.add(node.targets[0].id)
            known[id(node.targets[0])] = node.targets[0].id
    other = {
        item.id
        for item in _inside(function)
        if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load) and id(item) not in known
    }
    renamed = {getattr(item, "asname", None) or getattr(item, "name", None) for item in _inside(function)}
    return result - other - renamed  # of imports, exceptions, patterns, functions


def _is_in_memory(node, module):
    return isinstance(node.value, ast.Call) and module.origin(node.value.func) == ("io", "BytesIO")


def _makes_temporary(node, guarded, module):
    if not isinstance(node, ast.Call):
        return False
    where, name = module.origin(node.func)
    if name in GUARDS.get(where, ()):
        return True
    return name in ("open", "ZipFile", "TiffWriter") and bool(node.args) and _is_guarded(node.args[0], guarded, module)
