"""``uio worst``: which utterances hurt, as a record tells, what leaves them out, and the page to listen to them."""

import io
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from command import uio as run_uio
from corpus import Corpus, shards, wav_bytes
from kaldi_data import KaldiCorpus

import uio_pipes as uio
from uio_pipes.tools.reports.worst import find_worst

EPOCHS = 4


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Path]:
    """A corpus of 40, of which K0007's loss is high, K0011's does not fall, and K0013's is broken at the end."""
    root = tmp_path_factory.mktemp("worst")
    corpus = shards(root / "data", [10] * 4, seconds=(0.3, 0.6))
    loader = uio.Loader(uio.from_shard_list(corpus.list, shuffle=True).decode_audio().fbank(8).batch(4).pad())
    with uio.Recorder(root / "record", loader) as recorder:
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            for batch in loader:
                usual = {key: 4.0 - epoch + int(key[1:]) / 1000 for key in batch["keys"]}
                odd = {"K0007": 9.0 - epoch, "K0011": 4.0, "K0013": 1.5 if epoch < EPOCHS - 1 else float("nan")}
                recorder.log(batch, loss=[(usual | odd)[key] for key in batch["keys"]], norm=1.0)
    return corpus, root / "record"


def test_measures_are_by_mean_by_the_last_and_by_what_falls(recorded: tuple[Corpus, Path]) -> None:
    folder = recorded[1]
    mean = find_worst(folder, "mean")
    assert [one.key for one in mean.found[:3]] == ["K0013", "K0007", "K0011"], "a loss of nan is the worst"
    assert find_worst(folder, "last").found[1].key == "K0007"
    behind = find_worst(folder, "behind", most="5%").found
    assert [one.key for one in behind] == ["K0013", "K0011"], "of 40"
    one = next(one for one in mean.found if one.key == "K0007")
    assert (one.times, one.first, one.last, one.mean) == (EPOCHS, 9.0, 6.0, 7.5)
    assert Path(one.shard).name == "s000.tar"
    assert mean.rows == 40 * EPOCHS
    assert np.isfinite(mean.mean)


def test_what_is_usual_is_that_of_an_epoch_if_epochs_are_short(tmp_path: Path) -> None:
    """One window for all rows told that nobody was behind."""
    with uio.Recorder(tmp_path) as recorder:
        for epoch in range(3):
            keys = [f"u{n}" for n in range(48)]
            loader = uio.Loader(uio.from_iterable([{"key": key, "txt": "x"} for key in keys]).batch(48))
            loader.set_epoch(epoch)
            (batch,) = loader
            recorder.log(batch, loss=[3.5 if n == 7 else 3.0 / (1 + epoch) for n in range(48)])
    first, second = find_worst(tmp_path, "behind").found[:2]
    assert (first.key, first.behind, second.behind) == ("u7", 2.0, 0.0)


def test_groups_are_the_shards_and_the_lengths(recorded: tuple[Corpus, Path]) -> None:
    groups = {title: rows for title, _, rows in find_worst(recorded[1]).groups}
    assert set(groups) == {"By shard", "By length"}, "there is one source, one sample rate, and no speaker or token"
    shown = [list(row) for row in groups["By shard"]]
    assert len(shown) == 4
    assert shown[0][0].endswith("s001.tar")
    assert len(list(groups["By length"])) == 5


def test_the_list_is_left_out_by_loader_and_by_pipeline(recorded: tuple[Corpus, Path], tmp_path: Path) -> None:
    corpus, folder = recorded
    bad = str(tmp_path / "bad.jsonl")
    done = run_uio("worst", folder, "--top", 3, "--exclude", bad)
    assert done.returncode == 0, done.stderr
    assert f'loader.exclude("{bad}")' in done.stdout
    graph = uio.from_shard_list(corpus.list).decode_audio()
    loader = uio.Loader(graph.batch(3).pad())
    loader.exclude(bad)
    left = sorted(set(corpus.keys) - {"K0007", "K0011", "K0013"})
    assert sorted(key for batch in loader for key in batch["keys"]) == left
    stage = uio.from_shard_list(corpus.list).exclude(bad).decode_audio().batch(3).pad()
    assert sorted(key for batch in uio.Loader(stage) for key in batch["keys"]) == left


def test_the_page_has_what_was_said(recorded: tuple[Corpus, Path], tmp_path: Path) -> None:
    corpus, folder = recorded
    page = tmp_path / "worst.html"
    done = run_uio("worst", folder, "--top", 3, "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert len(re.findall(r'<audio src="data:audio/wav;base64,UklGR', text)) == 3
    assert len(re.findall(r'<img src="data:image/png;base64,iVBOR', text)) == 3
    assert "文7" in text
    assert "loss of the worst utterances" in text
    moved = Path(corpus.list).parent.rename(tmp_path / "moved")
    try:
        assert run_uio("worst", folder, "--top", 3, "--html", page).returncode == 0
        assert page.read_text().count("not found in its shard any more") == 3
    finally:
        moved.rename(Path(corpus.list).parent)


@pytest.mark.parametrize(("features", "bins"), [(".fbank(23)", 23), ("", 80)])
def test_the_page_shows_what_the_run_s_pipeline_makes(
    recorded: tuple[Corpus, Path], tmp_path: Path, features: str, bins: int
) -> None:
    corpus, folder = recorded
    page, script = tmp_path / "worst.html", tmp_path / "train.py"
    stages = f"uio.from_shard_list({str(corpus.list)!r}).decode_audio().resample(16_000){features}.batch(4).pad()"
    script.write_text(f"import uio_pipes as uio\n\npipeline = {stages}\n")
    done = run_uio("worst", folder, "--top", 1, "--html", page, "--pipeline", f"{script}:pipeline")
    assert done.returncode == 0, done.stderr
    (sound,) = re.findall(r'<audio src="data:audio/wav;base64,([^"]+)', page.read_text())
    assert soundfile.info(io.BytesIO(b64decode(sound))).samplerate == 8_000, "as it is in the shard"
    assert set(re.findall(r"\d+ × (\d+)", page.read_text())) == {str(bins)}


def test_texts_of_a_kaldi_folder_are_beside_its_recordings(kaldi_corpus: KaldiCorpus, tmp_path: Path) -> None:
    loader = uio.Loader(uio.from_kaldi(kaldi_corpus.folder).decode_audio().batch(4).pad(keep=["txt"]))
    texts: list[str] = []
    with uio.Recorder(tmp_path / "record", loader) as recorder:
        for batch in loader:
            recorder.log(batch, loss=1.0)
            texts += batch["txt"]
    page = tmp_path / "worst.html"
    assert run_uio("worst", tmp_path / "record", "--top", "100%", "--html", page).returncode == 0
    assert texts
    assert all(text in page.read_text() for text in texts)


def test_utterances_in_parquet_are_heard_too(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    audio = [{"bytes": wav_bytes(number, 8000, (0.3, 0.5)), "path": None} for number in range(4)]
    rows = {"key": [f"U{n}" for n in range(4)], "audio": audio, "txt": ["one", "two", "three", "four"]}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=2)
    graph = uio.from_parquet(str(tmp_path / "a.parquet"), fields={"wav": "audio"}).decode_audio().batch(2).pad()
    with uio.Recorder(tmp_path / "record") as recorder:
        for step, batch in enumerate(uio.Loader(graph)):
            recorder.log(batch, loss=1.0, step=step)
    page = tmp_path / "worst.html"
    assert run_uio("worst", tmp_path / "record", "--html", page, "--fields", "wav=audio").returncode == 0
    assert page.read_text().count("<audio") == 4
    assert "three" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--by", "loss"], "'loss' is not one of 'last', 'mean', 'behind'"),
        (["--number", "wer"], "has no number 'wer'; it has loss, norm"),
        (["--top", "many"], "as 20 or 4%, not 'many'"),
        (["--exclude", "bad.txt"], ".jsonl"),
    ],
)
def test_wrong_options_are_named(recorded: tuple[Corpus, Path], arguments: list[Any], message: str) -> None:
    done = run_uio("worst", recorded[1], *arguments)
    assert done.returncode
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_a_record_of_one_epoch_and_keys_alone(tmp_path: Path) -> None:
    folder, page = tmp_path / "record", tmp_path / "worst.html"
    with uio.Recorder(folder) as recorder:
        recorder.log(["a", "b"], step=0, ctc=[1.0, float("inf")])
        recorder.log(["c"], step=1, norm=3.0)
    found = find_worst(folder)
    assert [(one.key, one.times) for one in found.found] == [("b", 1), ("a", 1)]
    assert (found.number, found.mean, found.charts, found.groups) == ("ctc", 1.0, [], [])
    assert run_uio("worst", folder, "--html", page).returncode == 0
    assert page.read_text().count("not found in its shard any more") == 2
    loader = uio.Loader(uio.from_iterable([{"key": "a", "txt": "b"}]).batch(1))
    with uio.Recorder(folder, loader) as recorder:
        for batch in loader:
            recorder.log(batch, ctc=1.0)
    assert run_uio("worst", folder, "--html", page).returncode == 0
    assert page.read_text().count("cannot be read again") == 1


@pytest.mark.parametrize("by", ["last", "mean", "behind"])
def test_the_first_to_diverge_is_the_worst(tmp_path: Path, by: Any) -> None:
    with uio.Recorder(tmp_path) as recorder:
        for step, losses in enumerate(([1.0, 1.0, 1.0], [1.0, float("nan"), 1.0], [float("inf")] * 3)):
            recorder.log(["a", "b", "c"], step=step, loss=losses)
    assert [one.key for one in find_worst(tmp_path, by).found] == ["b", "a", "c"]


def test_a_record_without_a_finite_loss(tmp_path: Path) -> None:
    with uio.Recorder(tmp_path / "record") as recorder:
        for step in range(2):
            recorder.log(["a", "b"], step=step, loss=[float("nan"), float("inf")])
    done = run_uio("worst", tmp_path / "record", "--html", tmp_path / "worst.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert "The worst 2 of 2 by loss, which is never finite" in done.stdout
