"""What a notebook shows in place of text: small tables, escaped; by IPython itself."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from command import write_list
from IPython.core.interactiveshell import InteractiveShell

import uio_pipes as uio
from uio_pipes.inspect.peek import batch_html


class Cells(HTMLParser):
    """The rows of a table, whose tags must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.caption = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"table", "caption", "tr", "th", "td"}, "something was not escaped"
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] == "caption":
            self.caption += data
        else:
            self.rows[-1][-1] += data


@pytest.fixture
def shown() -> Iterator[Any]:
    """What IPython shows of a value; None if it has only text."""
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "uio_pipes")

    def show(value: Any) -> Cells | None:
        assert shell.display_formatter is not None
        found = shell.display_formatter.format(value)[0].get("text/html")
        return None if found is None else Cells(found)

    yield show
    InteractiveShell.clear_instance()


@pytest.fixture
def pipeline(tmp_path: Path) -> uio.Pipeline:
    return uio.from_raw_list(str(write_list(tmp_path, 9))).decode_audio().fbank(8)


def test_a_pipeline_is_a_table_of_its_stages_and_opens_nothing(shown: Any) -> None:
    mixed = uio.mix({"<b>": uio.from_raw_list("no.list"), "b": uio.from_raw_list("none.list")})
    graph = mixed.filter(lambda sample: sample["key"] < "&").batch(2).pad()
    cells = shown(graph)
    assert cells.rows[0] == ["stage", "note"]
    lines = str(graph).splitlines()
    assert len(cells.rows) == len(lines) + 1
    for row, line in zip(cells.rows[1:], lines, strict=True):
        assert line.split() == " ".join(row).split()
    assert "<b>" in cells.rows[2][0]


def test_a_peek_is_its_table(shown: Any, pipeline: uio.Pipeline) -> None:
    script = "<script>alert(1)</script>"
    found = pipeline.map(lambda sample: {**sample, "note": script}).batch(2).pad().peek()
    cells = shown(found)
    assert cells.caption == f"utterance {found.key}"
    texts = [cell for row in cells.rows for cell in row if cell]
    assert [text for text in texts if text not in str(found)] == []
    assert any(script in text for text in texts)


def test_counts_are_a_table_of_what_there_is(shown: Any, pipeline: uio.Pipeline) -> None:
    loader = uio.Loader(uio.mix({"a": pipeline, "b": pipeline}, stop="all").filter(min_frames=45).batch(2).pad())
    list(loader)
    stats = loader.stats()
    found = dict(shown(stats).rows[1:])
    assert found["utterances"] == f"{stats.utterances:,}"
    assert found["padding"] == f"{stats.padding_ratio:.1%}" != "0.0%"
    assert found["left out: too_short"] == f"{stats.skipped['too_short']:,}" != "0"
    assert found["from a"] == f"{stats.sources['a']:,}"
    assert "failures" in found


def test_a_batch_is_a_table_of_its_names_shapes_and_padding(shown: Any, pipeline: uio.Pipeline) -> None:
    batch = next(iter(uio.Loader(pipeline.batch(4).pad(pcm=True, keep=["txt"]))))
    assert type(batch) is dict, "as all that moves batches knows"
    cells = shown(batch)
    assert cells.caption == "a batch of 4"
    rows = {name: (what, padding) for name, what, padding in cells.rows[1:]}
    assert rows.keys() == batch.keys()
    lengths = batch["feats_lengths"]
    padding = 1 - lengths.sum() / (4 * lengths.max())
    assert rows["feats"] == (f"float32 (4, {int(lengths.max())}, 8)", f"{padding:.1%} padding")
    assert rows["pcm"][1].endswith("% padding")
    assert rows["keys"][0].startswith("list of 4 str")
    transposed = next(iter(uio.Loader(pipeline.batch(4).pad(transpose=True))))
    assert {row[0]: row[2] for row in shown(transposed).rows}["feats"] == f"{padding:.1%} padding"
    ragged = next(iter(uio.Loader(pipeline.batch(4).pad(layout="ragged"))))
    assert shown(ragged).caption == "a batch of 4"


@pytest.mark.parametrize(
    "other", [{}, {"a": 1}, {"a": [1]}, {1: torch.zeros(2)}, {"a": torch.zeros(2), "b": torch.zeros(3)}, {"a": "text"}]
)
def test_other_dicts_are_shown_as_before(shown: Any, other: Any) -> None:
    assert shown(other) is None
    assert batch_html(other) is None
