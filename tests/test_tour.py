"""The tour runs from top to bottom in a fresh kernel. ``python tests/test_tour.py`` runs it and stores its outputs."""

import base64
import io
import os
import re
import tempfile
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import nbformat
import PIL.Image
import pytest
from nbclient import NotebookClient

TOUR = Path(__file__).parents[1] / "docs" / "tour.ipynb"
PROMISED = [  # what a reader is to see, in this order
    r"48 utterances in 4 shards",
    r"exit status: -9\nkilled in epoch \d+, after \d+ steps",
    r"resumed after \d+ of \d+ steps",
    r"undisturbed run: \d{3}\nthe other two had the same: True\nmade again, the same: True",
    r"feats +\(\d+, \d+, 80\) float32",
    r"the replayed batch is the one that the model got: True\n.+: said in \d+ of 48 utterances",
    r"said: .+ heard: .+",
]


def executed(folder: Path) -> Any:
    """The notebook as a run leaves it. Its kernel begins in ``folder``/here, and finds its other folders there, too."""
    places = {name: str(folder / name) for name in ("IPYTHONDIR", "TMPDIR", "here")}
    for place in places.values():
        os.mkdir(place)
    tour = nbformat.read(TOUR, as_version=4)
    resources = {"metadata": {"path": places["here"]}}
    client = NotebookClient(tour, timeout=240, record_timing=False, coalesce_streams=True, resources=resources)
    client.execute(env={**os.environ, **places})
    return tour


def outputs(tour: Any) -> Iterator[Any]:
    return (output for cell in tour.cells for output in cell.get("outputs", ()))


def said(tour: Any) -> str:
    return "".join(output.get("text", "") for output in outputs(tour))


def told(tour: Any) -> list[str]:
    """What each cell says before the training, on which machine it may depend; numbers and blanks are of one run."""
    cells = takewhile(lambda cell: "subprocess.Popen" not in cell.source, tour.cells)
    shown = (output.get("text") or output.get("data", {}).get("text/plain", "") for cell in cells
             for output in cell.get("outputs", ()) if output.get("name") != "stderr")  # fmt: skip
    return [re.sub(r"\s+|─+", " ", re.sub(r"\d+([.,:]\d+)*", "#", text)) for text in shown]


def pictures(tour: Any) -> list[Any]:
    return [output for output in outputs(tour) if "image/png" in output.get("data", {})]


def store() -> None:
    """Run the tour and store what it shows: pictures in 64 colours, and nothing of the progress that stderr tells."""
    with tempfile.TemporaryDirectory() as folder:
        tour = executed(Path(folder))
    for cell in tour.cells:
        cell.get("outputs", [])[:] = [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
    for picture in pictures(tour):
        small = io.BytesIO()
        png = io.BytesIO(base64.b64decode(picture.data["image/png"]))
        PIL.Image.open(png).convert("RGB").quantize(64).save(small, "PNG", optimize=True)
        picture.data["image/png"] = base64.b64encode(small.getvalue()).decode()
    tour.metadata.language_info = {"name": "python"}
    nbformat.write(tour, TOUR)


@pytest.fixture(scope="module")
def stored() -> Any:
    tour = nbformat.read(TOUR, as_version=4)
    nbformat.validate(tour)
    return tour


def test_the_tour_runs_and_leaves_nothing_behind(tmp_path: Path, stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    tour = executed(tmp_path)
    assert list(tmp_path.glob("here/*")) + list(tmp_path.glob("TMPDIR/tmp*")) == []
    assert re.search(".*".join(PROMISED), said(tour), re.DOTALL)
    assert len(pictures(tour)) == len(pictures(stored))
    assert told(tour) == told(stored), "run .venv/bin/python tests/test_tour.py"


def test_its_stored_outputs_are_those_of_a_whole_run(stored: Any) -> None:
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert {output.output_type for output in outputs(stored)} == {"stream", "execute_result"}
    assert re.search(".*".join(PROMISED), said(stored), re.DOTALL)
    assert not re.search(r"\bassert\b", "".join(cell.source for cell in code)), "shown is what comes out"
    assert not re.search(r"/(home|root|tmp|work)\b|\x1b", said(stored))
    assert TOUR.stat().st_size < 400_000


def test_each_picture_is_told_in_words(stored: Any) -> None:
    assert len(pictures(stored)) == 3
    assert all(len(picture.metadata["image/png"]["alt"]) > 40 for picture in pictures(stored))


if __name__ == "__main__":
    store()
