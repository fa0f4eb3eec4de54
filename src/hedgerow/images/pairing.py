"""Image files by folder, name or glob, and the labels that belong to them."""

import glob
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hedgerow.errors import InputError, one_path, printable
from hedgerow.files import PathLike
from hedgerow.images.file_checks import is_zarr_folder, what_is_wrong
from hedgerow.images.reading import ENDINGS, ending_of
from hedgerow.progress import Say, quiet

FilesSpec = PathLike | Sequence[PathLike]
_LABEL_SUFFIX = re.compile(r"[ ._-](labels?|masks?|seg|segmentation|annotations?|gt)$", re.IGNORECASE)


def find_files(spec: FilesSpec) -> list[Path]:
    """The image files that a folder, a file, a glob, or a sequence of these stands for.

    A folder stands for its files with a supported ending, in natural order, without hidden files and those in
    subfolders. A Zarr folder counts as one file.
    """
    specs = [spec] if isinstance(spec, str | os.PathLike) else list(spec)
    if not specs:
        raise InputError("no files were given; expected a folder, a file or a glob")
    return list(dict.fromkeys(path for one in specs for path in _expand(one)))


def _expand(spec: PathLike) -> list[Path]:
    text = os.fspath(spec)
    if not text:
        raise InputError("an empty name was given for files; expected a folder, a file or a glob")
    try:
        text = os.path.expanduser(text)
        path = Path(text)
        if os.path.isdir(path) and not is_zarr_folder(path):
            return _supported(_entries(path), text)
        if os.path.exists(path):
            return _supported([path], text)
        if any(character in text for character in "*?["):
            return _supported([Path(match) for match in glob.glob(text, recursive=True)], text)
        os.stat(path)  # raises, and says why
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot find {one_path(text)}: {what_is_wrong(problem)}") from problem
    if os.path.islink(text):
        raise InputError(
            f"cannot find {one_path(text)}: it is a symbolic link to something that is not there; remove or repair it"
        )
    raise InputError(
        f"cannot find {one_path(text)}: there is no such file or folder; check the spelling, or quote a glob"
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as problem:
        raise InputError(f"cannot list {folder}: {problem.strerror}; check its permissions") from problem


def _supported(paths: list[Path], spec: str) -> list[Path]:
    """The image files among the paths, in natural order; there must be at least one.

    Links that lead nowhere and pipes are among them: whoever reads them is told, and can go on with the others.
    """
    images = [path for path in paths if ending_of(path) and (is_zarr_folder(path) or not os.path.isdir(path))]
    if images:
        return sorted(images, key=_natural_key)
    held = f"found {len(paths)} other file(s)" if paths else "found nothing"
    raise InputError(
        f"there are no images in {one_path(spec)}: {held}, expected names that end in {', '.join(ENDINGS)}"
    )


def _natural_key(path: Path) -> tuple[list[str | int], str]:
    """A sort key that puts img2 before img10."""
    text = str(path)
    parts = re.split("([0-9]+)", text.lower())  # every second part is a number
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], text


def stem_of(path: PathLike) -> str:
    """The name without folder and supported ending: "a" for a.ome.tif, b/a.PNG and a.ome.zarr."""
    name = unicodedata.normalize("NFC", Path(path).name)  # macOS stores an accented letter as two characters
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    stem = name[: len(name) - len(ending)]
    return stem[:-4] if ending in (".tif", ".tiff", ".zarr") and stem.lower().endswith(".ome") else stem


def in_words(spec: FilesSpec) -> str:
    """What `find_files` was given, as part of a sentence."""
    specs = [spec] if isinstance(spec, str | os.PathLike) else list(spec)
    more = f" and {len(specs) - 1} more" if len(specs) > 1 else ""
    return one_path(specs[0]) + more


def split_images_and_labels(names: Sequence[str]) -> tuple[FilesSpec, FilesSpec]:
    """Images and labels from names in one row, as a shell leaves them that has expanded patterns.

    The labels are the last name or, if that is one of several files, the last files that lie in one folder.
    """
    first = len(names) - 1
    if len(names) > 2:
        while first and _is_file(names[first]) and _is_file(names[first - 1], beside=names[first]):
            first -= 1
        if first == 0:
            pattern = os.path.join(os.path.dirname(names[0]), f"*{os.path.splitext(names[0])[1]}")
            raise InputError(
                f"the {len(names)} files given lie in one folder, so images and labels cannot be told apart; put the "
                f'images in quotes and the labels after them, e.g. "{one_path(pattern)}" labels/'
            )
    return tuple(some[0] if len(some) == 1 else some for some in (names[:first], names[first:]))  # type: ignore[return-value]


def _is_file(name: str, beside: str | None = None) -> bool:
    """Whether the name is that of a file, or of a Zarr folder, in the folder of the other one."""
    if beside is not None and os.path.dirname(name) != os.path.dirname(beside):
        return False
    path = Path(os.path.expanduser(name))
    return os.path.exists(path) and (not os.path.isdir(path) or is_zarr_folder(path))


def plain_stem(path: PathLike) -> str:
    """The stem without a suffix that label maps commonly carry: "a" for a_mask.png."""
    return _LABEL_SUFFIX.sub("", stem_of(path))


@dataclass(frozen=True)
class Pair:
    """An image file and the label file that belongs to it."""

    stem: str
    image: Path
    label: Path


def pair_files(images_spec: FilesSpec, labels_spec: FilesSpec, say: Say = quiet) -> list[Pair]:
    """Pair images with labels by stem, in the order of the images; both specs are as in `find_files`.

    A label whose stem matches no image may carry a common suffix: a_mask.png belongs to a.jpg. Images without labels
    are skipped, of which `say` receives a note.
    """
    images, labels = by_stem(find_files(images_spec)), by_stem(find_files(labels_spec))
    partners = {stem: path for stem, path in labels.items() if stem in images}
    strays = []
    for stem, path in labels.items():
        plain = plain_stem(path)
        if stem in images:
            continue
        if plain in images and plain not in partners:
            partners[plain] = path
        else:
            strays.append(path)
    missing = [path for stem, path in images.items() if stem not in partners]
    if len(missing) == len(images):
        raise InputError(
            f"{len(missing)} image(s) have no label of the same name: {_first_few(missing)}; expected, for"
            f" example, {stem_of(missing[0])}.png among the labels, so add them or leave these images out"
        )
    if strays:
        raise InputError(
            f"{len(strays)} label(s) have no image of the same name, or one that is already paired:"
            f" {_first_few(strays)}; add the images or leave these labels out"
        )
    if missing:
        names = printable(_first_few(missing))
        say(f"note: {len(missing)} image(s) without a label of the same name are skipped: {names}")
    pairs = [Pair(stem, path, partners[stem]) for stem, path in images.items() if stem in partners]
    for pair in pairs:
        if os.path.realpath(pair.image) == os.path.realpath(pair.label):
            raise InputError(f"{pair.image} is given both as image and as label; give two different places")
    return pairs


def by_stem(paths: Iterable[Path]) -> dict[str, Path]:
    """Stem -> file; two files of one stem are refused."""
    by_stem: dict[str, Path] = {}
    for path in paths:
        stem = stem_of(path)
        if stem in by_stem:
            raise InputError(
                f"{by_stem[stem]} and {path} have the same name apart from the ending; rename or remove one"
            )
        by_stem[stem] = path
    return by_stem


def _first_few(paths: Sequence[Path], n: int = 3) -> str:
    more = f" and {len(paths) - n} more" if len(paths) > n else ""
    return ", ".join(str(path) for path in paths[:n]) + more
