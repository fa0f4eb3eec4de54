"""The example notebook: it runs, in a real kernel, and what is stored of it is what it shows."""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
for package in ("torch", "matplotlib"):
    pytest.importorskip(package)

# So that bars appear however fast the machine is.
AT_ONCE = "from hedgerow.progress import NotebookBar\nNotebookBar.DELAY_SECONDS = 0\n"
PATH = Path(__file__).parents[1] / "docs" / "example.ipynb"


def read():
    return nbformat.read(PATH, nbformat.current_nbformat)


def kinds(notebook):
    """Per cell, what it shows; bars that have ended show nothing."""
    return [
        [sorted(output.data) for output in cell.outputs if "data" in output and output.data.get("text/html") != ""]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_stored_notebook_is_small_executed_and_free_of_errors():
    notebook = read()
    nbformat.validate(notebook)
    assert PATH.stat().st_size < 300_000
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert {output.output_type for cell in code for output in cell.outputs} <= {"execute_result", "stream"}
    assert [output.name for cell in code for output in cell.outputs if "name" in output] == ["stdout"]


def words(notebook):
    """Per cell, the words of its cards, without tags and numbers; a bar that has ended has none."""
    return [
        re.sub(r"<[^>]*>|[\d.,]+", " ", output.data["text/html"]).split()
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("data", {}).get("text/html")
    ]


@pytest.mark.filterwarnings("default")  # of the packages that start kernels
def test_the_notebook_runs_and_shows_what_is_stored(tmp_path):
    stored, notebook = read(), read()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell in code:
        cell.source = cell.source.replace("n_steps=30", "n_steps=3")
        cell.outputs = []
    code[0].source = AT_ONCE + code[0].source
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert kinds(notebook) == kinds(stored)
    assert words(notebook) == words(stored)
    bars = [output for cell in code for output in cell.outputs if output.output_type == "display_data"]
    assert len(bars) >= 4  # growing, scoring, refining, showing
    assert all(bar.data == {"text/html": "", "text/plain": ""} for bar in bars)  # each is gone when its work is done
    assert list(tmp_path.iterdir()) == []
