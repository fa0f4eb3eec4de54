"""Runs commands of Hedgerow in processes that may be killed or limited."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Ended:
    """What a command left: exit code (negative: the signal that killed it), texts, the number of steps that changed
    files, and the seconds from the first of them to the end."""

    code: int
    out: str
    err: str
    steps: int
    seconds: float


class Commands:
    """Starts commands: commands.run("predict", ...) -> Ended; home: a folder for what belongs to nobody's work."""

    def __init__(self, home):
        self.home = Path(home)
        self.home.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(TESTS)])),
            "XDG_STATE_HOME": str(self.home / "state"),
            "LOCALAPPDATA": str(self.home / "state"),
            "HEDGEROW_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process that starts commands ended with {self.process.wait()}")
        return json.loads(line)

    def run(self, *arguments, folder, **limits):
        """Run a command in a folder; limits: `step`, `after`, `largest` or `humble`, see `fuzz.server`."""
        words = [str(argument) for argument in arguments]
        request = {"arguments": words, "folder": str(folder), **limits}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        return Ended(**self._answer())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
