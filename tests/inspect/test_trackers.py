"""The lines of docs/seeing.md for other trackers, with the real packages: what arrives is what the loader counted."""

import re
from pathlib import Path
from typing import Any

import pytest
from corpus import Corpus

import uio_pipes as uio

PAGE = Path(__file__).parents[2] / "docs" / "seeing.md"


def line_for(logger: str) -> str:
    """The line that the page's table has for a logger."""
    (found,) = re.findall(rf"^\| {logger} \| `(.*)` \|$", PAGE.read_text(), re.M)
    return str(found)


def trained(corpus: Corpus, logger: str, **names: Any) -> list[dict[str, float]]:
    """What the loader counted at each step of a training that has the line in it."""
    pipeline = uio.from_shard_list(corpus.list).decode_audio().filter(min_frames=40).fbank(num_mel_bins=6).batch(4)
    loader, counted = uio.Loader(pipeline.pad(), seed=3), []
    line = compile(line_for(logger), str(PAGE), "exec")
    for step, _ in enumerate(loader):
        exec(line, {"loader": loader, "step": step, **names})
        counted.append(loader.stats().as_dict())
    assert counted[-1]["data/skipped/too_short"] > 0
    return counted


def test_weights_and_biases(many_shards: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=tmp_path, project="uio") as run:
        counted = trained(many_shards, "Weights & Biases", wandb=wandb)
        run.log({}, step=len(counted))  # W&B takes a step once the next one has begun
        assert {name: run.summary[name] for name in counted[-1]} == pytest.approx(counted[-1])
    assert list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))


def test_mlflow(many_shards: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        counted = trained(many_shards, "MLflow", mlflow=mlflow)
    client = mlflow.MlflowClient()
    for name in counted[0]:
        history = client.get_metric_history(run.info.run_id, name)
        assert [(one.step, one.value) for one in history] == [(step, row[name]) for step, row in enumerate(counted)]
