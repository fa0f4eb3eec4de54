"""A process that runs the command line in children of its own: everything is imported once, and each command has a
process that can be killed, or limited in what it may write.

It reads lines of JSON and answers with lines of JSON. Run by `fuzz.commands`, never by hand.
"""

import json
import mmap
import os
import resource
import signal
import struct
import sys
import time
import warnings
from contextlib import suppress

import hedgerow as hr
from fuzz import privileges

WAIT = 240  # seconds after which a command counts as hanging
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGING = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")


def run(request, answers):
    """Run a command in a child, as a request says -> how it ended.

    arguments, folder: what to run, and where
    step: kill it before the so-manieth step that changes a file below the folder
    after: kill it so many seconds after the first such step
    largest: no file may grow beyond so many bytes
    humble: without the rights of an administrator
    """
    counter = mmap.mmap(-1, 8)  # shared with the child
    texts = [Text(), Text()]
    process = os.fork()
    if process == 0:
        os.close(answers)
        _be_command(request, counter, [text.write for text in texts])
    code, begin, first = None, time.monotonic(), None
    while code is None:
        result, status = os.waitpid(process, os.WNOHANG)
        for text in texts:
            text.listen()
        if result:
            code = os.waitstatus_to_exitcode(status)
            break
        now = time.monotonic()
        if first is None and _steps(counter):
            first = now
        is_due = request.get("after") is not None and first is not None and now >= first + request["after"]
        if is_due or now > begin + WAIT:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.0005)
    out, err = (text.close() for text in texts)
    seconds = time.monotonic() - (begin if first is None else first)
    return {"code": code, "out": out, "err": err, "steps": _steps(counter), "seconds": seconds}


def _steps(counter):
    return struct.unpack("q", counter[:8])[0]


class Text:
    """What a child says, through a pipe: a file could not grow where a command may not write."""

    def __init__(self):
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self.output = b""

    def listen(self):
        with suppress(BlockingIOError):
            while part := os.read(self.read, 65536):
                self.output += part

    def close(self):
        self.listen()
        os.close(self.read)
        os.close(self.write)
        return self.output.decode("utf-8", errors="replace")


def _be_command(request, counter, streams):
    code = 1
    try:
        os.chdir(request["folder"])
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if request.get("largest") is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest"], request["largest"]))
        if request.get("humble"):
            privileges.give_up()
        sys.addaudithook(_counting(counter, os.path.realpath(request["folder"]), request.get("step")))
        sys.argv = ["hedgerow", *request["arguments"]]
        code = _command_line()
    except BaseException as problem:
        print(f"the harness failed: {type(problem).__name__}: {problem}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _command_line():
    from hedgerow.cli.app import main

    try:
        main()
    except SystemExit as leaving:
        return leaving.code or 0
    return 0


def _counting(counter, folder, step):
    """An audit hook that counts the steps that change files below a folder, and kills the process before one."""

    def hook(event, arguments):
        if event == "open":
            path, mode, flags = arguments
            changes = any(letter in mode for letter in "wax+") if mode else bool((flags or 0) & WRITING)
        else:
            changes, path = event in CHANGING, arguments[0] if arguments else None
        if not changes or not isinstance(path, str | bytes | os.PathLike):
            return
        if not os.path.realpath(os.fsdecode(path)).startswith(folder + os.sep):
            return
        done = _steps(counter)
        if step is not None and done >= step:
            os.kill(os.getpid(), signal.SIGKILL)
        counter[:8] = struct.pack("q", done + 1)

    return hook


def _prepare():
    """Import, and load the compiled kernels, so that the children need not. PyTorch is not used: a used one cannot be
    forked."""
    import numpy as np

    import hedgerow.cli.app  # noqa: F401

    with suppress(ImportError):
        import torch  # noqa: F401
    hr.set_threads(1)
    image = np.arange(30 * 30, dtype=np.uint8).reshape(30, 30)
    config = hr.StackConfig(n_levels=2, n_trees=2, max_depth=3, min_split=5, sigmas=(1.0,))
    hr.fit_stack([image, image.T], [image > 99, image.T > 99], config).predict(image)


def main():
    answers = os.dup(1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    _prepare()
    with os.fdopen(os.dup(answers), "w") as out:
        print(json.dumps({"code": 0}), file=out, flush=True)
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line), answers)), file=out, flush=True)


if __name__ == "__main__":
    main()
