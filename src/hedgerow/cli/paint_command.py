"""The command that opens the page to paint on."""

import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hedgerow import extras
from hedgerow import paint as page
from hedgerow.errors import ConfigError, InputError, one_line

Files = Annotated[
    list[str], typer.Argument(metavar="IMAGES", help="Images to paint on: a folder, files, or a pattern.")
]


def paint(
    images: Files,
    project: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Project folder; by default IMAGES-painted beside the images.")
    ] = None,
    port: Annotated[int, typer.Option(show_default=False, help="Port to listen on; by default any that is free.")] = 0,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on; with any other than 127.0.0.1, the network can reach the page.",
        ),
    ] = "127.0.0.1",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
) -> None:
    """Open a page to paint on: paint a few strokes and see the segmentation at once.

    Every stroke is saved as you paint it. The command hedgerow train reads the labels that the page exports.

    Example: hedgerow paint photos/
    """
    for package in ("starlette", "uvicorn", "websockets"):
        extras.require(package, "the page to paint on")
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port is {port}; give a number from 1 to 65535.")
    opened, notes = page.open_project(images, project)
    for sentence in notes:
        print(f"note: {sentence}")
    try:
        listening = _listening(host, port)
    except OSError as problem:
        opened.close()
        raise InputError(
            f"cannot listen on {host}, port {port}: {one_line(problem)}; give another --port."
        ) from problem

    def ready(address: str) -> None:
        print(f"paint at {address}\nthe project is {opened.folder}; Ctrl-C ends the program", flush=True)
        if not no_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    page.run_server(opened, listening, host, ready)
    print(f"your work is saved in {opened.folder}")


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 means any port that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
