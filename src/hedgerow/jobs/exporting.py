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


@dataclass(frozen=True)
class ExportRequest:
    """A model to write as "c" or "onnx".

    output:    None: beside the model
    filters:   features are computed too; else the caller gives them
    name:      C: what names begin with; None: the default of `export_c`
    overwrite: also overwrite existing files that Hedgerow did not write
    """

    model: PathLike
    to: str
    output: PathLike | None = None
    filters: bool = True
    name: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.to != "c" and self.name is not None:
            raise ConfigError(f"a name (--name) is for the names in C, and this is {self.to}; leave it out.")


def export(request: ExportRequest) -> Exported:
    """Write a model for other programs."""
    model, filters = model_file.load(request.model), request.filters
    output = Path(request.model).with_suffix(f".{request.to}") if request.output is None else Path(request.output)
    for path in (output.with_suffix(".h"), output) if request.to == "c" else (output,):
        checked_output(path, [request.model], f"model.{request.to}", overwrite=request.overwrite)
    if request.to == "onnx":
        return Exported((export_onnx(model, output, filters=filters),))
    names = {} if request.name is None else {"name": request.name}
    return Exported(
        export_c(model, output, **names, filters=filters), compile=f"{COMPILE} -c {shlex.quote(str(output))}"
    )
