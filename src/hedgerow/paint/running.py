"""From images to a running server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from hedgerow.paint.guarding import Guard
from hedgerow.paint.image_files import image_files
from hedgerow.paint.project import Project
from hedgerow.paint.server import Server, serving
from hedgerow.paint.session import default_folder


def open_project(images: Sequence[str], folder: Path | None) -> tuple[Project, list[str]]:
    """The project of some images, and sentences about what is left out or was lost."""
    found, notes = image_files(list(images))
    opened = Project(folder or default_folder(Path(images[0])), found)
    if opened.journal.note:
        notes.append(opened.journal.note)
    return opened, notes


def run(
    project: Project,
    listening: socket.socket,
    host: str,
    ready: Callable[[str], None],
) -> None:
    """Serve until the program is interrupted. ready: is told the address to open"""
    server = Server(project)
    guard = Guard(server.app, host, listening.getsockname()[1])
    project.held.note(guard.address.partition("?")[0])
    server.start()
    try:
        ready(guard.address)
        serving(guard).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        server.close()
        listening.close()
