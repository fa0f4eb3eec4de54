"""Subjects: the patient, slide, well or stack that images come from. Images of one subject are held out together.

Neighbouring slices of one patient are nearly the same image, so that a model which learned from one of them seems to
know the other. Held-out scores would be too high, and choices by these scores would be wrong.

If nobody says which images belong together, their names are read: they may name a subject (patient3_left.png), or be
those of slices or time points (anna_z012.png). Running numbers say nothing, as of photo_01.png to photo_16.png.

The other images are grouped by how alike they look: they are compared as pictures of THUMB_SIDE x THUMB_SIDE pixels
with mean 0 and variance 1. In a set of independent images, the distances between them are all about the same, however
alike the images are; neighbours in a stack are far closer to each other than to the rest.
"""

import csv
import os
import re
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from hedgerow.documents import read_user_text
from hedgerow.errors import ConfigError, InputError, one_line, one_path, shown
from hedgerow.files import PathLike
from hedgerow.images.labelled import LabelledSet, subjects_of
from hedgerow.images.pairing import stem_of
from hedgerow.progress import Say

Groups: TypeAlias = PathLike | Sequence[Hashable] | np.ndarray | None
"""Which images belong together: "none": each is on its own; a CSV file with the columns image and group; a regular
expression for the names of the images, whose first group in brackets, or whole match, names the group; or, in Python, a
group for each image. None: images whose names say so, or that look alike, belong together."""

NONE = "none"
_SUBJECT = re.compile(
    r"(?<![a-z])(patient|person|subject|subj|sub|donor|case|animal|mouse|rat|embryo|larva|fish|fly|worm|brain|organoid"
    r"|biopsy|specimen|sample|slide|well|stack|volume|vol|series|scan)[ _-]?[a-h]?\d+(?!\d)",
    re.IGNORECASE,
)
_SLICE_OR_TIME = re.compile(
    r"[ _.-]*(?<![a-z])(z|t|tp|slice|sl|section|sec|plane|frame|time|timepoint|page)[ _.=-]?\d+(?![a-z0-9])",
    re.IGNORECASE,
)
FEWEST_PREFIXES = 4  # names with several numbers say something if so many subjects differ in all but the last number
THUMB_SIDE = 32  # pixels of the pictures that are compared
CLOSE = 0.45  # times the median distance of the set: closer images look alike. 0.51 was the closest of independent ones
CLOSE_AT_MOST = 0.7  # distance; two unrelated pictures have about sqrt(2)
# Where most neighbours are close, so are all within a stack, below so many times the median distance: 24 stacks of MRI
# slices had at most 0.55 between neighbours, and at least 0.97 where one stack followed the other.
NEIGHBOURLY = 0.75
FEWEST, NEARLY_SAME = 4, 0.2  # fewer images have no median to speak of; they are alike below this distance


def subject_names(names: Sequence[str], planes: Sequence[np.ndarray] | None, groups: Groups, say: Say) -> list[str]:
    """The subject of each image, "" for an image on its own; prints which images were found to belong together.

    names:  of the images: paths, or words
    planes: the images (C,H,W); None: they are too large to compare
    """
    if isinstance(groups, str | os.PathLike):
        if groups == NONE:
            return [""] * len(names)
        path = Path(groups)
        is_file = isinstance(groups, os.PathLike) or path.suffix.lower() == ".csv" or os.path.isfile(path)
        return _from_file(path, names) if is_file else _from_pattern(str(groups), names)
    if groups is not None:
        if len(groups) != len(names):
            raise InputError(f"there are {len(groups)} group(s) for {len(names)} image(s); give one for each.")
        return ["" if group is None else str(group) for group in groups]
    subjects = _by_name(names, say)
    rest = [i for i, subject in enumerate(subjects) if not subject]
    if planes is not None and len(rest) > 1:
        alike = _alike([names[i] for i in rest], [planes[i] for i in rest], say)
        for i, subject in zip(rest, alike, strict=True):
            subjects[i] = subject
    return subjects


def grouped(labelled: LabelledSet, groups: Groups, say: Say) -> LabelledSet:
    """The images with their subjects, all of them in memory."""
    images, groups = list(labelled), check_groups(groups)
    # Volumes are whole stacks: those of two patients may look alike.
    planes = None if labelled.is_volume else [image.planes for image in images]
    subjects = subject_names([image.name for image in images], planes, groups, say)
    named = [replace(image, subject=subject) for image, subject in zip(images, subjects, strict=True)]
    return replace(labelled, images=named)


def check_groups(groups: Any) -> Groups:
    """Groups as a caller gave them; refuses what is none before long work begins."""
    if isinstance(groups, str) and not groups:
        raise ConfigError('the groups are ""; give a CSV file, a pattern for the names of the images, or "none".')
    if groups is None or isinstance(groups, str | os.PathLike):
        return groups
    if isinstance(groups, Collection) and not isinstance(groups, Set | Mapping | bytes):  # also a column of a table
        return list(groups)
    raise ConfigError(
        f'groups is a {type(groups).__name__}; give a CSV file, a pattern, a group for each image, or "none".'
    )


def _from_file(path: Path, names: Sequence[str]) -> list[str]:
    """The second column of a CSV file, for images in its first: file names with or without folder and ending."""
    try:
        lines = read_user_text(path).splitlines()
        rows = [[cell.strip() for cell in row] for row in csv.reader(lines) if any(row)]
    except (OSError, ValueError, csv.Error) as problem:
        raise InputError(f"cannot read {path}: {one_line(problem)}; give a CSV file with image and group.") from problem
    if not rows or any(len(row) != 2 or not all(row) for row in rows):
        raise InputError(f"{path} is no table of groups; give each image a line with its name, a comma and its group.")
    groups_of: dict[str, set[str]] = {}
    for image, group in rows:
        groups_of.setdefault(image, set()).add(group)
    subjects: list[str] = []
    for name in names:
        known: set[str] = set().union(*(groups_of.get(key, ()) for key in (name, Path(name).name, Path(name).stem)))
        if len(known) != 1:
            has = f"{len(known)} groups" if known else "no group"
            raise InputError(f"{path} has {has} for {one_path(name)}; give it one line: its name, a comma, its group.")
        subjects += known
    return subjects


def _from_pattern(pattern: str, names: Sequence[str]) -> list[str]:
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ConfigError(
            f"the groups {shown(pattern)} are no file and no regular expression: {one_line(problem)}."
        ) from problem
    subjects = []
    for name in names:
        match = expression.search(Path(name).stem)
        group = match and (match[1] if expression.groups else match[0])
        if not group:
            raise InputError(
                f"the groups {shown(pattern)} do not match {shown(Path(name).stem)}, the name of an image; give a "
                "pattern that matches all of them, e.g. '^[^_]+' for the part before the first _."
            )
        subjects.append(group)
    return subjects


def _by_name(names: Sequence[str], say: Say) -> list[str]:
    """The subject that each name tells, "" if it tells none, if it is the only one of its subject, or if there is only
    one subject: nothing could be held out."""
    stems = [stem_of(name) for name in names]
    own = [_told(stem) for stem in stems]
    if not any(own):
        own = _before_last_number(stems)
    n_images = Counter(own)
    subjects = [subject if n_images[subject] > 1 else "" for subject in own]
    groups = [name for name in dict.fromkeys(subjects) if name]
    if not groups or len(subjects_of(subjects)) < 2:
        return [""] * len(names)
    _note("belong together by their names", subjects, groups, names, say)
    return subjects


def _told(stem: str) -> str:
    """The name up to the number of a subject, e.g. patient3; else the name without its slice or time."""
    if subject := _SUBJECT.search(stem):
        return stem[: subject.end()]
    rest, n_found = _SLICE_OR_TIME.subn("", stem)
    return rest if n_found else ""


def _before_last_number(stems: Sequence[str]) -> list[str]:
    """Names that differ only in several numbers, up to the last number: img7_crop for img7_crop12."""
    is_alike = len({re.sub(r"\d+", "0", stem) for stem in stems}) == 1
    prefixes = [re.sub(r"[ _.-]*\d+\D*$", "", stem) for stem in stems]
    return prefixes if is_alike and len(set(prefixes)) >= FEWEST_PREFIXES else [""] * len(stems)


def _note(why: str, subjects: Sequence[str], groups: Sequence[str], names: Sequence[str], say: Say) -> None:
    """Print which images belong together."""
    first = [name for name, subject in zip(names, subjects, strict=True) if subject == groups[0]]
    n_images = sum(subject in groups for subject in subjects)
    say(
        f"note: {n_images} images {why}, in {len(groups)} group(s), e.g. {one_path(first[0])} and {one_path(first[-1])}"
        '; each group is held out as a whole. If they are independent, add --groups none (in Python groups="none")'
    )


def _alike(names: Sequence[str], planes: Sequence[np.ndarray], say: Say) -> list[str]:
    number = linked(distances([picture(image) for image in planes]))
    n_images = Counter(number)
    subjects = [f"alike {n}" if n_images[n] > 1 else "" for n in number]
    if groups := [name for name in dict.fromkeys(subjects) if name]:
        _note("look alike", subjects, groups, names, say)
    return subjects


def picture(planes: np.ndarray) -> np.ndarray:
    """(THUMB_SIDE * THUMB_SIDE,) float32: a small picture of an image (C,H,W), with mean 0 and variance 1 or 0."""
    edges = [np.linspace(0, n, THUMB_SIDE + 1)[:-1].astype(int) for n in planes.shape[1:]]
    counts = [np.diff(np.append(edge, n)) for edge, n in zip(edges, planes.shape[1:], strict=True)]
    if min(planes.shape[1:]) < THUMB_SIDE:  # repeated pixels, as `reduceat` gives them
        counts = [np.maximum(count, 1) for count in counts]
    grey = planes.mean(axis=0, dtype=np.float64)
    sums = np.add.reduceat(np.add.reduceat(grey, edges[0], axis=0), edges[1], axis=1)
    small = (sums / np.outer(*counts)).ravel()
    small -= small.mean()
    deviation = small.std()
    return (small / deviation if deviation > 0 else small).astype(np.float32)


def distances(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """(N,N) root mean squared difference of each pair."""
    stacked = np.stack(pictures)
    products = stacked @ stacked.T / stacked.shape[1]
    norms = np.diagonal(products)
    return np.sqrt(np.maximum(norms[:, None] + norms[None] - 2 * products, 0))


def linked(distance: np.ndarray) -> list[int]:
    """(N,) the number of each image's group, by the (N,N) distances of images in their order."""
    n = len(distance)
    neighbours = np.arange(n - 1), np.arange(1, n)
    median = float(np.median(distance[np.triu_indices(n, 1)]))
    limit = NEARLY_SAME if n < FEWEST else min(CLOSE * median, CLOSE_AT_MOST)
    if (distance[neighbours] < limit).mean() < 0.5:
        is_close = distance < limit
    else:  # slices of stacks; those of two stacks may look alike, too, but not where one stack follows the other
        is_close = distance < NEARLY_SAME
        is_close[neighbours] |= distance[neighbours] < (NEARLY_SAME if n < FEWEST else NEIGHBOURLY * median)
    number: np.ndarray = csgraph.connected_components(sparse.coo_matrix(is_close), directed=False)[1]
    return number.tolist()
