"""The command that opens the page to paint on."""

import re
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from hedgerow import extras
from hedgerow import paint as page
from hedgerow.errors import ConfigError, InputError, one_line

DEFAULT_PORT = 7643

Files = Annotated[
    list[str], typer.Argument(metavar="IMAGES", help="Images to paint on: a folder, files, or a pattern.")
]


def paint(
    images: Files,
    project: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Project folder; by default IMAGES-painted beside the images.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help=f"Port to listen on; by default {DEFAULT_PORT}, or any that is free if that is not."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on; with any other than 127.0.0.1, the network can reach the page.",
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also answer by this name, as localhost:9000 through a tunnel, or hub.example.org; may be repeated.",
        ),
    ] = None,
    base_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path of the page behind a proxy, such as /user/me/proxy/8000/.")
    ] = "/",
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="LABELS",
            help="Paint these labels on images without paint: a folder of label maps, or a COCO or GeoJSON file.",
        ),
    ] = None,
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
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError(f"--port is {port}; give a number from 1 to 65535.")
    for name in allow_host or ():
        if not re.fullmatch(r"[\w.-]+(:\d{1,5})?|\[[0-9a-fA-F:]+\](:\d{1,5})?", name):
            raise ConfigError(
                f"--allow-host is {name}; give a name without https:// and path, such as hub.example.org."
            )
    if not re.fullmatch(r"/[\w./~@-]*", base_path):
        raise ConfigError(f"--base-path is {base_path}; give a path that begins with a slash, such as /proxy/8000/.")
    opened, notes = page.open_project(images, project)
    for sentence in notes:
        print(f"note: {sentence}")
    try:
        for sentence in page.import_labels(opened, labels) if labels is not None else ():
            print(sentence)
    except BaseException:
        opened.close()
        raise
    try:
        listening = _listening(host, port) if port is not None else _listening_by_default(host)
    except OSError as problem:
        opened.close()
        raise InputError(
            f"cannot listen on {host}, port {port}: {one_line(problem)}; give another --port."
        ) from problem

    def ready(address: str) -> None:
        print(f"paint at {address}\nthe project is {opened.folder}; Ctrl-C ends the program", flush=True)
        if not no_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    page.run_server(opened, listening, host, ready, allow_host or (), base_path)
    print(f"your work is saved in {opened.folder}")


def _listening_by_default(host: str) -> socket.socket:
    """A socket that listens on the default port, so that bookmarks and open pages work, or on any that is free."""
    try:
        return _listening(host, DEFAULT_PORT)
    except OSError:
        return _listening(host, 0)


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
