"""What the commands share: arguments, checks before long work, and short texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hedgerow.errors import InputError

Images = Annotated[str, typer.Argument(help="Folder, file or glob (in quotes) of arrays.")]
Labels = Annotated[str, typer.Argument(help="Folder, file or glob of label maps, named like their arrays.")]
Model = Annotated[Path, typer.Argument(help="Model file.")]


class DeviceName(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


Device = Annotated[DeviceName, typer.Option(help="Where to compute; see `hedgerow info --system`.")]
Unlabelled = Annotated[int | None, typer.Option(help="Label value that means: no label here (255 unless told).")]


class Files(Sequence[Any]):
    """Arrays that are read when they are asked for, so that one at a time is in memory."""

    def __init__(self, files: Sequence[Path], read: Callable[[Path], Any]) -> None:
        self.files, self.read = files, read

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: Any) -> Any:
        return Files(self.files[i], self.read) if isinstance(i, slice) else self.read(self.files[i])


def check_writable(output: Path, pairs: list[Any], *others: Path | None, example: str = "model.hedge") -> None:
    """Long work must not end in a refusal to write, nor take the place of what it was made from."""
    from hedgerow.files import check_folder_writable

    inputs = [*(p.image for p in pairs), *(p.label for p in pairs), *(path for path in others if path)]
    if output.resolve() in {path.resolve() for path in inputs}:
        raise InputError(f"{output} is one of the files to read; give another name to write.")
    if output.is_dir():
        raise InputError(f"{output} is a folder; give the name of a file to write, e.g. {output / example}.")
    if not output.parent.is_dir():
        raise InputError(f"cannot write {output}: there is no folder {output.parent}; make it first.")
    check_folder_writable(output.parent)


def check_sizes(pictures: list[Any], maps: list[Any], pairs: list[Any], features: str) -> None:
    from hedgerow.images.arrays import check_pair, to_labels, to_planes

    for picture, labels, pair in zip(pictures, maps, pairs, strict=True):
        check_pair(to_planes(picture, str(pair.image), features), to_labels(labels, str(pair.label)), str(pair.image))


def class_table(maps: list[Any], unlabelled: int, pairs: list[Any], labels: str) -> Any:
    """The table of classes; a refusal that is about all the label maps names the place they came from."""
    from hedgerow.images import arrays

    names = [str(p.label) for p in pairs]
    try:
        return arrays.class_table(maps, unlabelled, names)
    except InputError as error:
        if any(name in str(error) for name in names):
            raise
        raise InputError(f"{labels}: {error}") from error


def kinds(pictures: list[Any]) -> str:
    seen = {f"{' x '.join(map(str, p.shape))} {p.dtype}": None for p in pictures}
    return ", ".join(list(seen)[:3]) + (f" and {len(seen) - 3} more kinds" if len(seen) > 3 else "")


def megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.2f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"
