"""Exporting: the model of a file as C or ONNX."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from hedgerow.errors import ConfigError
from hedgerow.export.c import COMPILE, export_c
from hedgerow.export.onnx_model import export_onnx
from hedgerow.files import PathLike
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output


@dataclass(frozen=True)
class Exported:
    """The files that were written, and the command that compiles them; None where there is nothing to compile."""

    files: tuple[Path, ...]
    compile: str | None = None


def export(
    model: PathLike,
    to: str,
    output: PathLike | None = None,
    *,
    filters: bool = True,
    name: str | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a model as "c" or "onnx".

    output:  None: beside the model
    filters: features are computed too; else the caller gives them
    overwrite: also existing files that Hedgerow did not write
    name:    C: what names begin with; None: the default of `export_c`
    """
    if to != "c" and name is not None:
        raise ConfigError(f"a name (--name) is for the names in C, and this is {to}; leave it out.")
    loaded = model_file.load(model)
    output = Path(model).with_suffix(f".{to}") if output is None else Path(output)
    for path in (output.with_suffix(".h"), output) if to == "c" else (output,):
        checked_output(path, [model], f"model.{to}", overwrite=overwrite)
    if to == "onnx":
        return Exported((export_onnx(loaded, output, filters=filters),))
    names = {} if name is None else {"name": name}
    return Exported(
        export_c(loaded, output, **names, filters=filters), compile=f"{COMPILE} -c {shlex.quote(str(output))}"
    )
