"""Exporting a model as C or ONNX."""

from dataclasses import dataclass
from pathlib import Path

from hedgerow.choices import EXPORT_FORMATS
from hedgerow.errors import ConfigError
from hedgerow.export.kinds import Exported
from hedgerow.files import PathLike
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, refuse_volumes


@dataclass(frozen=True)
class ExportRequest:
    """A model to export for other programs.

    to:        "c" or "onnx", also the ending of the file
    output:    the file to write; None: beside the model
    filters:   the export computes the features too; False: its caller computes them
    name:      C: prefix of public names; None: the name of the file
    overwrite: also overwrite existing files that Hedgerow did not write
    """

    model: PathLike
    to: str
    output: PathLike | None = None
    filters: bool = True
    name: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.to not in EXPORT_FORMATS:
            raise ConfigError(f"cannot export to {self.to!r}; choose one of {', '.join(EXPORT_FORMATS)}.")
        if self.to != "c" and self.name is not None:
            raise ConfigError(f"--name sets the names in C source and has no use in {self.to}; leave it out.")


def export(request: ExportRequest) -> Exported:
    """Export a model."""
    write, model = EXPORT_FORMATS[request.to].load(), model_file.load(request.model)
    refuse_volumes(model, request.model, "export")
    output = Path(request.model).with_suffix(f".{request.to}") if request.output is None else Path(request.output)
    for path in (output.with_suffix(".h"), output) if request.to == "c" else (output,):
        checked_output(path, [request.model], f"model.{request.to}", overwrite=request.overwrite)
    exported: Exported = write(model, output, request.filters, request.name)
    return exported
