"""Finds image files by folder, name or glob, and pairs them with their labels."""

import glob
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hedgerow.errors import InputError, first_few, one_path, printable
from hedgerow.files import PathLike
from hedgerow.images.axes import frames_of
from hedgerow.images.file_checks import is_zarr_folder, reason_and_remedy
from hedgerow.images.reading import ENDINGS, content_of_file, ending_of
from hedgerow.images.remote import is_remote
from hedgerow.images.stored import CHANNELS, ImageSpec, Stored
from hedgerow.progress import Say, quiet

FilesSpec = PathLike | Sequence[PathLike]
ONE_PLANE = (".png", ".jpg", ".jpeg")  # endings of files that hold a single plane
_LABEL_SUFFIX = re.compile(r"[ ._-](labels?|masks?|seg|segmentation|annotations?|gt)$", re.IGNORECASE)


def find_files(spec: FilesSpec) -> list[Path]:
    """The image files given by a folder, a file, a glob, or a sequence of these.

    A folder gives its files with a supported ending, in natural order, without hidden files and subfolders. A Zarr
    folder counts as one file.
    """
    specs = [spec] if isinstance(spec, str | os.PathLike) else list(spec)
    if not specs:
        raise InputError("no files were given; expected a folder, a file or a glob.")
    return list(dict.fromkeys(path for each in specs for path in _expand(each)))


def _expand(spec: PathLike) -> list[Path]:
    text = os.fspath(spec)
    if not text:
        raise InputError("an empty name was given for files; expected a folder, a file or a glob.")
    try:
        text = os.path.expanduser(text)
        path = Path(text)
        if os.path.isdir(path) and not is_zarr_folder(path):
            return _supported(_entries(path), text)
        if os.path.exists(path):
            return _supported([path], text)
        if any(character in text for character in "*?["):
            return _supported([Path(match) for match in glob.glob(text, recursive=True)], text)
        os.stat(path)  # raises an error that gives the reason
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot find {one_path(text)}: {reason_and_remedy(problem)}.") from problem
    if os.path.islink(text):
        raise InputError(
            f"cannot find {one_path(text)}: it is a symbolic link to something that is not there; remove or repair it."
        )
    raise InputError(
        f"cannot find {one_path(text)}: there is no such file or folder; check the spelling, or quote a glob."
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError as problem:
        raise InputError(f"cannot list {folder}: {problem.strerror}; check its permissions.") from problem


def _supported(paths: list[Path], spec: str) -> list[Path]:
    """The image files among the paths, in natural order; there must be at least one.

    Includes pipes and links that lead nowhere: reading them gives an error, and other files can still be read.
    """
    images = [path for path in paths if ending_of(path) and (is_zarr_folder(path) or not os.path.isdir(path))]
    if images:
        return sorted(images, key=_natural_key)
    held = f"found {len(paths)} other file(s)" if paths else "found nothing"
    raise InputError(
        f"there are no images in {one_path(spec)}: {held}, expected names that end in {', '.join(ENDINGS)}."
    )


def _natural_key(path: Path) -> tuple[list[str | int], str]:
    """A sort key that puts img2 before img10."""
    text = str(path)
    parts = re.split("([0-9]+)", text.lower())  # every second part is a number
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], text


def stem_of(path: PathLike) -> str:
    """The name without its folder and supported ending: "a" for a.ome.tif, b/a.PNG and a.ome.zarr."""
    name = unicodedata.normalize("NFC", Path(path).name)  # macOS stores an accented letter as two characters
    ending = next((ending for ending in ENDINGS if name.lower().endswith(ending)), "")
    stem = name[: len(name) - len(ending)]
    return stem[:-4] if ending in (".tif", ".tiff", ".zarr") and stem.lower().endswith(".ome") else stem


def in_words(spec: FilesSpec) -> str:
    """The argument of `find_files`, for use in a sentence."""
    return first_few([one_path(each) for each in ([spec] if isinstance(spec, str | os.PathLike) else spec)], 1)


def split_images_and_labels(names: Sequence[str]) -> tuple[FilesSpec, FilesSpec]:
    """Images and labels from a single list of names, which a shell makes when it expands patterns.

    The labels are the last name or, if that is one of several files in the same folder, all files at the end of the
    list that are in this folder.
    """
    first = len(names) - 1
    if len(names) > 2:
        while first and _is_file(names[first]) and _is_file(names[first - 1], beside=names[first]):
            first -= 1
        if first == 0:
            pattern = os.path.join(os.path.dirname(names[0]), f"*{os.path.splitext(names[0])[1]}")
            raise InputError(
                f"all {len(names)} files are in one folder, so images and labels cannot be told apart; put the "
                f'images in quotes and the labels after them, e.g. "{one_path(pattern)}" labels/.'
            )
    return tuple(some[0] if len(some) == 1 else some for some in (names[:first], names[first:]))  # type: ignore[return-value]


def _is_file(name: str, beside: str | None = None) -> bool:
    """Whether a name is that of a file or a Zarr folder, in the same folder as `beside`."""
    if beside is not None and os.path.dirname(name) != os.path.dirname(beside):
        return False
    path = Path(os.path.expanduser(name))
    return os.path.exists(path) and (not os.path.isdir(path) or is_zarr_folder(path))


def _names_a_file(spec: FilesSpec) -> bool:
    """Whether files are given as the name of a single one, not as a folder or a pattern."""
    names = [spec] if isinstance(spec, str | os.PathLike) else list(spec)
    return len(names) == 1 and _is_file(os.fspath(names[0]))


def plain_stem(path: PathLike) -> str:
    """The stem without a common suffix of label maps: "a" for a_mask.png."""
    return _LABEL_SUFFIX.sub("", stem_of(path))


@dataclass(frozen=True)
class Pair:
    """An image file and the label file that belongs to it."""

    stem: str
    image: Path
    label: Path


def pair_files(images_spec: FilesSpec, labels_spec: FilesSpec, say: Say = quiet) -> list[Pair]:
    """Pair images with labels by stem, in the order of the images; both arguments are as in `find_files`.

    A label whose stem matches no image may have a common suffix: a_mask.png belongs to a.jpg. Images without labels are
    skipped, with a note. One image and one label, each given by its own name, belong together whatever their names.
    """
    images, labels = by_stem(find_files(images_spec)), by_stem(find_files(labels_spec))
    if _names_a_file(images_spec) and _names_a_file(labels_spec):
        labels = dict(zip(images, labels.values(), strict=True))
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
            f"{len(missing)} image(s) have no label with the same name: {first_few(missing)}; expected, for"
            f" example, {stem_of(missing[0])}.png among the labels; add the labels or leave these images out."
        )
    if strays:
        raise InputError(
            f"{len(strays)} label(s) have no image with the same name, or one that has another label:"
            f" {first_few(strays)}; add the images or leave these labels out."
        )
    if missing:
        names = printable(first_few(missing))
        say(f"note: {len(missing)} image(s) without a label with the same name are skipped: {names}")
    pairs = [Pair(stem, path, partners[stem]) for stem, path in images.items() if stem in partners]
    for pair in pairs:
        if os.path.realpath(pair.image) == os.path.realpath(pair.label):
            raise InputError(f"{pair.image} is given both as image and as label; give two different files.")
    return pairs


def by_stem(paths: Iterable[Path]) -> dict[str, Path]:
    """Stem -> file; refuses two files with the same stem."""
    files: dict[str, Path] = {}
    for path in paths:
        other = files.setdefault(stem_of(path), path)
        if other is not path:
            raise InputError(f"{other} and {path} have the same name except for the ending; rename or remove one.")
    return files


@dataclass(frozen=True)
class LabelledFile:
    """How to open an image and its labels, and which time point of both it is; name: for messages."""

    image: ImageSpec
    labels: ImageSpec
    name: str
    is_volume: bool = False
    frame: int = 0


def labelled_files(pairs: Sequence[Pair], names: Sequence[str], how: ImageSpec) -> list[LabelledFile]:
    """The images, volumes and time points of pairs of files. how: to read the images, whatever their path"""
    files = []
    for pair, name in zip(pairs, names, strict=True):
        image, labels, is_volume, n_frames = _specs_of(pair, how)
        if n_frames is None:
            files.append(LabelledFile(image, labels, name, is_volume))
        else:
            files += [LabelledFile(image, labels, f"{name}, time {i}", is_volume, i) for i in range(n_frames)]
    return files


def _specs_of(pair: Pair, how: ImageSpec) -> tuple[ImageSpec, ImageSpec, bool, int | None]:
    """How to open an image and its labels, whether they are a volume, and the number of time points, None if they are
    no series.

    Only if both have z planes, they are a volume, and likewise with time points. Axes without names are those of the
    other file, if their lengths agree.
    """
    image = replace(how, path=str(pair.image), volumes=True)
    labels = replace(image, path=str(pair.label), layout="labels", voxel=None)
    if how.pages is None and not {ending_of(pair.image), ending_of(pair.label)} & set(ONE_PLANE):
        image, labels = _with_axes(image, labels)
        frames = [_frames(spec) for spec in (image, labels)]
        of_image, of_labels = frames
        if of_image is not None and of_labels is not None and of_image[1] == of_labels[1]:
            n_frames = {len(own) for own, _ in (of_image, of_labels)}
            if len(n_frames) > 1:
                raise InputError(
                    f"{pair.image} has {len(of_image[0])} time points and its labels {len(of_labels[0])}; give as many,"
                    " and those that are not labelled with the value of pixels without a label."
                )
            n = None if n_frames == {1} and "T" not in how.axes else n_frames.pop()
            return image, labels, of_image[1], n
    return replace(image, volumes=False), replace(labels, volumes=False, pages=None), False, None


def is_stack(spec: ImageSpec) -> bool:
    """Whether a file on this machine holds a volume or a series of images, and these are to be read as such."""
    if spec.pages is not None or is_remote(spec.path) or ending_of(spec.path) in ONE_PLANE:
        return False
    return _frames(spec) is not None


def _frames(spec: ImageSpec) -> tuple[list[Sequence[int]], bool] | None:
    content = content_of_file(spec)
    return None if content is None else frames_of(content, bool(spec.axes))


def _with_axes(image: ImageSpec, labels: ImageSpec) -> tuple[ImageSpec, ImageSpec]:
    """The same files, those without names of axes with the axes of the other; both z, y and x if neither has names."""
    of_image, of_labels = content_of_file(image), content_of_file(labels)
    if of_image is None or of_labels is None:
        return image, labels
    own, other = _without_channels(of_image), _without_channels(of_labels)
    if of_image.is_unknown and of_labels.is_unknown:
        if of_image.shape == of_labels.shape and len(of_image.shape) == 3 and of_image.shape[-1] not in (1, 3, 4):
            return replace(image, assumed="ZYX"), replace(labels, assumed="ZYX")
    elif of_labels.is_unknown and of_labels.shape == tuple(own.values()):
        return image, replace(labels, assumed="".join(own))
    elif of_image.is_unknown and of_image.shape == tuple(other.values()):
        return replace(image, assumed="".join(other)), labels
    return image, labels


def _without_channels(content: Stored) -> dict[str, int]:
    """Axis -> length, of all axes but channels and those of length 1."""
    named = zip(content.axes, content.shape, strict=False)
    return {axis: length for axis, length in named if axis not in CHANNELS and (length > 1 or axis in "YX")}
