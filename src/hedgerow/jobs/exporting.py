"""Exporting: the model of a file as C or ONNX."""

from dataclasses import dataclass
from pathlib import Path

from hedgerow.choices import EXPORTS
from hedgerow.errors import ConfigError
from hedgerow.export.kinds import Exported
from hedgerow.files import PathLike
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output


@dataclass(frozen=True)
class ExportRequest:
    """A model to write in a format of other programs.

    to:        "c" or "onnx"; it is also the ending of the file
    output:    None: beside the model
    filters:   features are computed too; else the caller gives them
    name:      C: what names begin with; None: with the name of the file
    overwrite: also overwrite existing files that Hedgerow did not write
    """

    model: PathLike
    to: str
    output: PathLike | None = None
    filters: bool = True
    name: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.to not in EXPORTS:
            raise ConfigError(f"cannot export to {self.to!r}; choose one of {', '.join(EXPORTS)}.")
        if self.to != "c" and self.name is not None:
            raise ConfigError(f"--name sets the names in C source and has no use in {self.to}; leave it out.")


def export(request: ExportRequest) -> Exported:
    """Write a model for other programs."""
    write, model = EXPORTS[request.to].load(), model_file.load(request.model)
    output = Path(request.model).with_suffix(f".{request.to}") if request.output is None else Path(request.output)
    for path in (output.with_suffix(".h"), output) if request.to == "c" else (output,):
        checked_output(path, [request.model], f"model.{request.to}", overwrite=request.overwrite)
    exported: Exported = write(model, output, request.filters, request.name)
    return exported
