"""The files of a project are recognised before anything is changed: another program may use the same names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hedgerow.errors import InputError
from hedgerow.files import one_line


def first_bytes(path: Path, n_bytes: int) -> bytes | None:
    """The beginning of a file; None: there is none. Pipes and devices are refused, since opening one may never end."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise foreign(path, "it is not a file")
        with open(path, "rb") as file:
            return file.read(n_bytes)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem


def foreign(path: Path, why: str) -> InputError:
    """The refusal of a file that has a name of ours and was not written by us."""
    return InputError(
        f"{path} is not a file of a project to paint on, or is damaged ({why}); it is left as it is: restore it, or "
        "give another folder (--project)."
    )
