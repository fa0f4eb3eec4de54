"""Commands that are killed or run out of disk: what was there before, or what was asked for, is there and whole."""

import os
import signal
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from fuzz.commands import Commands
from fuzz.outcomes import LONGEST_MESSAGE, Failure, Outcome, require
from fuzz.runner import DISTURBED
from fuzz.scenes import NEEDS_TORCH, SCENES, Scene, furnish
from fuzz.values import pick
from hedgerow import extras

NAMES = [name for name in SCENES if name not in NEEDS_TORCH or extras.is_there("torch")]
IS_POSSIBLE = hasattr(os, "fork")  # the commands are children of a process that has everything imported


class Disturbed:
    """Disturbs commands in a folder, and checks what they leave.

    scenes, last: by name, each in a folder of its own, and the one that was disturbed last
    """

    def __init__(self, folder, home=None):
        self.folder, self.scenes, self.n_scenes, self.last = Path(folder), {}, 0, None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.commands = Commands(home or self.folder / "home")
        furnish(self.folder / "furnished", self.commands)

    def stop(self):
        self.commands.stop()

    def scene(self, name):
        if name not in self.scenes:
            self.n_scenes += 1
            folder = self.folder / f"scene{self.n_scenes}"
            self.scenes[name] = Scene(name, self.folder / "furnished", folder, self.commands)
        self.last = self.scenes[name]
        return self.last

    def kill(self, name, version, *, fresh=False, **moment):
        """Kill a command at a moment (`step` or `after`), look, and run it again -> Outcome.

        version: 0 or 1, what to write; the other one is there, unless `fresh`
        """
        scene = self.scene(name)
        _prepare(scene, 1 - version, fresh)
        ended = scene.run(version, **moment)
        was_killed = ended.code == -signal.SIGKILL
        require(was_killed or ended.code == 0, f"it ended with {ended.code}: {ended.err[-300:]}")
        result = scene.left()
        what = _judge(scene, version, result, fresh)
        again = scene.run(version)
        require(again.code == 0, f"the next run ended with {again.code}: {again.err[-300:]}")
        _check_whole(scene, version)
        return Outcome(what if was_killed else "finished", f"{name} {moment}")

    def fill(self, name, version, full, *, fresh=False):
        """Run a command while there is no space for what it writes, look, and run it again -> Outcome.

        full: a context in which there is no space; yields the limits of the command, if that is by limits
        """
        scene = self.scene(name)
        _prepare(scene, 1 - version, fresh)
        with full as limits:
            ended = scene.run(version, **limits)
            result = scene.left()
        require(ended.code in (0, 2), f"it ended with {ended.code}: {ended.err[-300:]}")
        left = [path for path in result.temporary if not path.endswith(".checkpoint")]
        require(not left, f"it left {left}")
        if ended.code == 2:
            check_refusal(ended)
        what = _judge(scene, version, result, fresh)
        require(what == "all new" or ended.code == 2, f"it wrote no new output, yet ended with {ended.code}")
        again = scene.run(version)
        require(again.code == 0, f"the next run ended with {again.code}: {again.err[-300:]}")
        _check_whole(scene, version)
        return Outcome(what if ended.code else "finished", f"{name}, {limits}")

    def random_kill(self, rng):
        """Some command, killed at some step, or some time after its first."""
        name, version, fresh = pick(rng, NAMES), int(rng.integers(2)), rng.random() < 0.2
        scene = self.scene(name)
        if rng.random() < 0.5:
            return self.kill(name, version, fresh=fresh, step=int(rng.integers(scene.steps)))
        return self.kill(name, version, fresh=fresh, after=float(rng.random() * scene.seconds))

    def random_fill(self, rng):
        """Some command, with some limit."""
        name, version, fresh = pick(rng, NAMES), int(rng.integers(2)), rng.random() < 0.2
        return self.fill(name, version, nullcontext({"largest": int(2 ** rng.uniform(0, 17))}), fresh=fresh)

    def run(self, kind, seed, number):
        """Outcome of a random case of a kind, "kills" or "full"."""
        rng = np.random.default_rng([seed, 100 + DISTURBED.index(kind), number])
        do = {"kills": self.random_kill, "full": self.random_fill}[kind]
        try:
            return do(rng)
        except Failure as failure:
            self.scenes.clear()  # whatever it left stays for people to see, and the next case begins anew
            return Outcome(failure.what, f"{self.last.name}: {failure}")


def _prepare(scene, version, fresh):
    """Nothing, or this version, whole, is where the output will be."""
    if fresh:
        scene.clear()
    elif scene.left().outputs != scene.wholes[version]:
        ended = scene.run(version)
        require(ended.code == 0, f"an undisturbed run ended with {ended.code}: {ended.err[-300:]}")
    require(scene.left().outputs == ({} if fresh else scene.wholes[version]), "an undisturbed run gave something else")


def _judge(scene, version, result, fresh):
    """ "old kept", "some new" or "all new"; raises Failure unless each output is whole and the inputs are as before."""
    old, new = {} if fresh else scene.wholes[1 - version], scene.wholes[version]
    require(result.others == scene.inputs, "an input was changed, or a file appeared that is no output")
    for name in sorted(old.keys() | new.keys() | result.outputs.keys()):
        state = result.outputs.get(name)
        require(state in (old.get(name), new.get(name)), f"{name} is neither the old nor the new one")
    n_new = sum(result.outputs.get(name) == new[name] for name in new)
    return "all new" if n_new == len(new) else "some new" if n_new else "old kept"


def _check_whole(scene, version):
    """The next run gave what an undisturbed one gives, and cleaned up."""
    after = scene.left()
    require(after.outputs == scene.wholes[version], "the next run gave something else than an undisturbed one")
    require(not after.temporary, f"the next run left {after.temporary}")
    require(after.others == scene.inputs, "the next run changed an input")


def check_refusal(ended):
    """A command refused with one sentence, and a line for each image that it went past."""
    lines = ended.err.splitlines()
    require(bool(lines) and lines[-1].startswith("hedgerow: "), f"it said {ended.err[-300:]!r}")
    require("Traceback" not in ended.err and "unexpected" not in lines[-1], f"it said {ended.err[-300:]!r}")
    require(len(lines[-1]) <= LONGEST_MESSAGE, f"it said {len(lines[-1])} characters")
