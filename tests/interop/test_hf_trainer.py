"""The ``Trainer`` of transformers with the real package: resumed exactly or not at all, and data is dealt out once."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command import ranks
from corpus import Corpus

import uio_pipes as uio

accelerate = pytest.importorskip("accelerate", reason="could not import accelerate: pip install accelerate")
transformers = pytest.importorskip("transformers", reason="could not import transformers: pip install transformers")
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]


class Model(torch.nn.Module):
    """Remembers which utterances it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[int] = []

    def forward(self, number: Any = None, keys: Any = (), **others: Any) -> dict[str, torch.Tensor]:
        number = torch.tensor([int(key[1:]) for key in keys]) if number is None else number
        self.seen += number.tolist()
        return {"loss": self.layer(number[:, None] / 100.0).mean(), "logits": number}


def numbered(sample: dict[str, Any]) -> dict[str, Any]:
    return {"number": torch.tensor(int(sample["key"][1:]))}


class Saves(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Saves the loader's state beside each checkpoint."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        text = json.dumps(kwargs["train_dataloader"].state_dict())
        (Path(args.output_dir) / f"checkpoint-{state.global_step}" / "loader.json").write_text(text)


class Trained(transformers.Trainer):  # type: ignore[misc, name-defined]
    """A Trainer on a loader of ours, or on a dataset."""

    def __init__(self, folder: Path, data: Any, **options: Any) -> None:
        given = {"max_steps": 10, "save_strategy": "steps", "save_steps": 3, **options}
        arguments = transformers.TrainingArguments(
            str(folder), use_cpu=True, report_to=[], disable_tqdm=True, remove_unused_columns=False,
            per_device_train_batch_size=2, per_device_eval_batch_size=2, logging_strategy="no", **given,
        )  # fmt: skip
        dataset = data if isinstance(data, uio.PipelineDataset) else None
        callbacks = [] if dataset is not None else [Saves()]
        super().__init__(Model(), arguments, train_dataset=dataset, callbacks=callbacks)
        self.data = data

    def get_train_dataloader(self) -> Any:
        return super().get_train_dataloader() if self.train_dataset is not None else self.data


def loader(corpus: Corpus, steps: int | None) -> uio.Loader:
    graph = uio.from_shard_list(corpus.list, shuffle=True).decode_audio().batch(2).pad()
    return uio.Loader(graph, seed=3, steps_per_epoch=steps)


def test_trainer_resumes_exactly_with_the_loaders_state_and_not_without(many_shards: Corpus, tmp_path: Path) -> None:
    whole = Trained(tmp_path, loader(many_shards, 4))
    whole.train()
    assert len(whole.model.seen) == 20
    for step in (3, 6, 9):
        checkpoint = tmp_path / f"checkpoint-{step}"
        data = loader(many_shards, 4)
        with pytest.raises(AttributeError, match=r"load it before .* ignore_data_skip=True"):
            Trained(tmp_path / "again", data).train(str(checkpoint))
        with pytest.raises(uio.PipelineError, match=r"resumes at step .* trained on again"):
            Trained(tmp_path / "again", data, ignore_data_skip=True).train(str(checkpoint))
        data.load_state_dict(json.loads((checkpoint / "loader.json").read_text()))
        resumed = Trained(tmp_path / "again", data, ignore_data_skip=True)
        resumed.train(str(checkpoint))
        assert resumed.model.seen == whole.model.seen[2 * step :], f"after step {step}"


def test_a_dataset_is_passed_over_exactly_or_not_at_all(many_shards: Corpus, tmp_path: Path) -> None:
    """The Trainer takes the epochs of a dataset without a length for one. 48 utterances are 24 steps."""
    for endless in (False, True):
        graph = uio.from_shard_list(many_shards.list, shuffle=True)
        graph = (graph.repeat() if endless else graph).shuffle(5).map(numbered)
        wanted: dict[str, Any] = {"max_steps": 40, "save_steps": 15}
        whole = Trained(tmp_path / str(endless), graph.as_dataset(), **wanted)
        whole.train()
        for step in (15, 30):
            resumed = Trained(tmp_path / "again", graph.as_dataset(), **wanted)
            checkpoint = str(tmp_path / str(endless) / f"checkpoint-{step}")
            if step == 30 and not endless:
                with pytest.raises(uio.PipelineError, match=r"resumes in epoch 1 .* by \.repeat\(\)"):
                    resumed.train(checkpoint)
            else:
                resumed.train(checkpoint)
                assert resumed.model.seen == whole.model.seen[2 * step :]


# Two ranks


def main(settings: dict[str, Any]) -> None:
    accelerate.PartialState(cpu=True)  # begins the process group
    found = {}
    for partition in (True, False):
        dataset = uio.from_shard_list(settings["list"]).map(numbered).as_dataset(partition=partition)
        trainer = Trained(Path(settings["folder"]) / "run", dataset, max_steps=3, save_strategy="no")
        try:
            trainer.train()
            predicted = trainer.predict(dataset).predictions[-1]
            found[str(partition)] = [trainer.model.seen[:12], predicted.tolist()]
        except uio.PipelineError as error:
            found[str(partition)] = [str(error)]
    (Path(settings["folder"]) / f"{trainer.args.process_index}.json").write_text(json.dumps(found))


def test_utterances_are_dealt_out_once(many_shards: Corpus, tmp_path: Path) -> None:
    done = ranks(2, __file__, json.dumps({"list": str(many_shards.list), "folder": str(tmp_path)}))
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for one in found:
        assert "as_dataset(partition=False)" in one["True"][0]
        assert sorted(one["False"][1]) == sorted(int(key[1:]) for key in many_shards.keys)
    assert not set(found[0]["False"][0]) & set(found[1]["False"][0])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
