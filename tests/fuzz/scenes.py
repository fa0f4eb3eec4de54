"""A folder with images, labels and models, and commands that write into it over what an earlier run wrote."""

import shutil
from dataclasses import dataclass

import numpy as np

import hedgerow as hr
from conftest import draw
from helpers.files import write

N_IMAGES = 3
SETTINGS = hr.StackConfig(
    drop_levels=False,
    n_levels=2,
    n_trees=3,
    max_depth=5,
    min_split=5,
    sigmas=(0.7, 2.0),
    context=hr.ContextConfig(window=9, n_offsets=3),
    sampling=hr.SamplingConfig(step=1),
)
REFINEMENT = hr.RefineConfig(n_steps=6, check_every=1, stride=2, learning_rate=0.02, relax=0.4)
# By name: the command, with {} for 0 or 1, the version to write; and what it writes.
SCENES = {
    "train": ("train images labels -o new.hedge --config settings.toml --seed {}", "new.hedge"),
    "refine": ("refine model{}.hedge images labels -o net.hedge --config refinement.toml", "net.hedge"),
    "predict png": ("predict model{}.hedge images -o maps", "maps"),
    "predict tif": ("predict model{}.hedge images -o maps --format tif --proba", "maps"),
    "predict zarr": ("predict model{}.hedge images -o maps --format zarr --confidence", "maps"),
}
NEEDS_TORCH = ("refine",)


@dataclass(frozen=True)
class Left:
    """What lies in the folder of a scene after a command.

    outputs: by name, a file or a folder of Zarr, what it holds
    temporary: names of files that are ours, but nobody's output
    others: everything else, by name
    """

    outputs: dict
    temporary: list
    others: dict


class Scene:
    """One command in a folder of its own; wholes: what each of the two versions of it writes when undisturbed."""

    def __init__(self, name, furnished, folder, commands):
        self.name, self.folder, self.commands = name, folder, commands
        self.command, self.output = SCENES[name]
        shutil.copytree(furnished, folder)
        self.inputs = self.left().others
        self.wholes, self.steps, self.seconds = {}, 0, 0.0
        for version in (1, 0):
            self.clear()
            ended = self.run(version)
            if ended.code:
                raise RuntimeError(f"{name} cannot even run undisturbed: {ended.err}")
            self.wholes[version] = self.left().outputs
            self.steps, self.seconds = max(self.steps, ended.steps), max(self.seconds, ended.seconds)

    def run(self, version, **limits):
        """Run the command -> Ended."""
        words = self.command.format(version).split()
        return self.commands.run(*words, folder=self.folder, **limits)

    def clear(self):
        """Remove all output."""
        for path in self.folder.iterdir():
            if path.name == self.output or path.name.startswith(self.output + "."):
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def left(self):
        """What lies in the folder now -> Left."""
        outputs, temporary, others = {}, [], {}
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if any(part.startswith(".hedgerow") for part in name.parts) or name.suffix == ".checkpoint":
                temporary.append(name.as_posix())
            elif path.is_file():
                is_output = name.parts[0] == self.output
                whole = name.as_posix() if not is_output else "/".join(name.parts[:2])
                within = outputs.setdefault(whole, {}) if is_output else others
                within[name.as_posix()] = path.read_bytes()
        return Left(outputs, temporary, others)


def furnish(folder, commands):
    """Fill a new folder with images, labels, settings, and two models that see different things."""
    folder.mkdir()
    for number in range(N_IMAGES):
        image, labels = draw(number)
        write(folder / "images" / f"a{number}.png", image)
        write(folder / "labels" / f"a{number}.png", labels.astype(np.uint8))
    SETTINGS.write(folder / "settings.toml")
    REFINEMENT.write(folder / "refinement.toml")
    for seed in (0, 1):
        words = f"train images labels -o model{seed}.hedge --config settings.toml --seed {seed}".split()
        ended = commands.run(*words, "--trees", 3 - seed, folder=folder)
        if ended.code:
            raise RuntimeError(f"no model could be trained: {ended.err}")
