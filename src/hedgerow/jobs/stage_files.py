"""What the stages of a run leave in a folder: models and choices, each read back if the run is started again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hedgerow.config import DeepConfig, RefineConfig, StackConfig
from hedgerow.errors import HedgerowError, InputError
from hedgerow.files import fingerprint, make_folder, write_text
from hedgerow.images.labelled import LabelledSet
from hedgerow.io import model_file
from hedgerow.overwrite_guard import is_state, remove_empty, remove_state
from hedgerow.temporary import is_temporary, remove_temporaries

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.deep.refinement_search import RefinementChoice
    from hedgerow.forest.arrays import ForestStack
    from hedgerow.network.stacknet import StackNet


Item = TypeVar("Item")
RUN = "run.txt"  # says which run it is
OURS = (".hedge", ".json", ".state", ".array", ".checkpoint")


class StageFiles:
    """The files of a run; without a folder nothing is kept."""

    def __init__(
        self,
        folder: Path | None,
        effort: str,
        minutes: float | None,
        device: str,
        config: StackConfig,
        labelled: LabelledSet,
    ) -> None:
        """All that decides what a run makes: the folder of another run is refused."""
        self.folder = folder
        if folder is None:
            return
        arrays = [array for image in labelled for array in (image.planes, image.target)]
        mark = fingerprint(effort, minutes, device, config.to_dict(), list(labelled.classes), *arrays)
        _check_ours(folder)
        make_folder(folder)
        noted = folder / RUN
        if noted.exists() and noted.read_text(encoding="utf-8").strip() != mark:
            raise InputError(
                f"{folder} holds an interrupted run with another effort, time or device, other settings or images; "
                "start again with --restart, or give the same ones."
            )
        write_text(noted, mark)

    def path(self, name: str) -> Path | None:
        """The file of this name."""
        return None if self.folder is None else self.folder / name

    def model(
        self, name: str, make: Callable[[], ForestStack | StackNet | DeepStack]
    ) -> ForestStack | StackNet | DeepStack:
        """The model of a stage: as it was kept, or made now and kept."""
        path = self.path(f"{name}.hedge")
        if path is not None and path.exists():
            try:
                return model_file.load(path)
            except HedgerowError:
                pass  # not a whole one: made again
        made = make()
        if path is not None:
            model_file.save(made.to("cpu"), path)
        return made

    def choice(self, make: Callable[[], RefinementChoice]) -> RefinementChoice:
        """How to refine: as it was chosen, or chosen now."""
        from hedgerow.deep.refinement_search import RefinementChoice

        def rebuilt(values: dict[str, Any]) -> RefinementChoice:
            tried = [(name, dice) for name, dice in values["tried"]]
            return RefinementChoice(RefineConfig.from_dict(values["config"]), values["stack"], values["refined"], tried)

        return self._kept("choice", make, lambda one: {**asdict(one), "config": one.config.to_dict()}, rebuilt)

    def settings(self, name: str, make: Callable[[], DeepConfig]) -> DeepConfig:
        """Settings that depend on how fast this machine is: as they were at first."""
        return self._kept(name, make, DeepConfig.to_dict, DeepConfig.from_dict)

    def seconds(self, name: str, taken: float) -> float:
        """How long a stage took when it was made, though this run may just have read it."""
        return self._kept(
            f"{name}-seconds", lambda: taken, lambda one: {"seconds": one}, lambda one: float(one["seconds"])
        )

    def _kept(
        self,
        name: str,
        make: Callable[[], Item],
        to_dict: Callable[[Item], dict[str, Any]],
        rebuilt: Callable[[dict[str, Any]], Item],
    ) -> Item:
        path = self.path(f"{name}.json")
        if path is not None and path.exists():
            try:
                values = json.loads(path.read_text(encoding="utf-8"))
                del values["hedgerow"]
                return rebuilt(values)
            except (HedgerowError, ValueError, KeyError, TypeError):
                pass
        made = make()
        if path is not None:
            write_text(path, json.dumps({"hedgerow": "the state of a run", **to_dict(made)}))
        return made


def forget(folder: Path) -> None:
    """Remove what a run kept, and the folder, unless somebody put other files into it.

    What shows that the folder is ours goes last: if this is interrupted, the next run must recognise the rest.
    """
    _check_ours(folder)
    for path in _files(folder):
        remove_state(path)
    remove_temporaries(folder)
    remove_state(folder / RUN)  # last: as long as it is there, the folder is known to be of a run
    remove_empty(folder)


def _check_ours(folder: Path) -> None:
    """Raise InputError if something else has the name of the folder."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir() or not (is_state(folder / RUN) or all(map(is_temporary, folder.iterdir()))):
        raise InputError(f"{folder} would keep the state of the run, but is something else; move it away first.")
    foreign = next((path for path in _files(folder) if not is_state(path)), None)
    if foreign is not None:
        raise InputError(f"{foreign} is in the folder of a run, but Hedgerow did not write it; move it away first.")


def _files(folder: Path) -> list[Path]:
    """The files of a run, but for the one that says which run it is, and any that are named like them."""
    return sorted(path for path in folder.glob("*") if path.suffix in OURS)
