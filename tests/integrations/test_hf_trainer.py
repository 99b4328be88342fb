"""The ``Trainer`` of transformers, the real package: resumed exactly, evaluated once, and data is dealt out once."""

import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from command import FORKS, told_by_ranks
from command import uio as run_uio
from corpus import Corpus
from processes import kill_inside

import uio_pipes as uio
from uio_pipes.integrations.hf_trainer import FILE

accelerate = pytest.importorskip("accelerate", reason="could not import accelerate: pip install accelerate")
transformers = pytest.importorskip("transformers", reason="could not import transformers: pip install transformers")
pytestmark = [pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]
HEAVY = ["transformers.trainer_seq2seq", "transformers.models.whisper.modeling_whisper"]  # with accelerate
QUIET = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "logging_strategy": "no"}


class Model(torch.nn.Module):
    """Remembers which utterances it was trained on; ``noise`` draws from torch's generator, as dropout does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[int] = []
        self.noise: list[float] = []

    def forward(self, number: Any = None, keys: Any = (), labels: Any = None) -> dict[str, torch.Tensor]:
        number = torch.tensor([int(key[1:]) for key in keys]) if number is None else number
        if self.training:
            self.seen += number.tolist()
            self.noise.append(float(torch.rand(())))
        return {"loss": self.layer(number[:, None] / 100.0).mean(), "logits": number}


def numbered(sample: dict[str, Any]) -> dict[str, Any]:
    return {"number": torch.tensor(int(sample["key"][1:]))}


class Ours(uio.HFTrainerMixin, transformers.Trainer):  # type: ignore[misc, name-defined]
    """A Trainer on our loaders, with a model that is new, but equal, for each."""

    def __init__(self, folder: Path, train: Any, evaluated: Any = None, **options: Any) -> None:
        transformers.set_seed(1)
        arguments = transformers.TrainingArguments(str(folder), **{"save_steps": 1, **QUIET, **options})
        super().__init__(
            Model(),
            arguments,
            train_dataset=train,
            eval_dataset=evaluated,
            compute_metrics=lambda found: found_in(found),
        )


def found_in(found: Any) -> dict[str, Any]:
    return {"equal": (found.predictions == found.label_ids).all(), "count": len(found.predictions)}


def pipeline(corpus: Corpus | str) -> uio.Pipeline:
    path = corpus if isinstance(corpus, str) else corpus.list
    return labelled(uio.from_shard_list(path, shuffle=True).shuffle(5).batch(2))


def labelled(graph: uio.Pipeline) -> uio.Pipeline:
    """Batches whose labels are the numbers of the utterances."""
    return graph.pad(collate=numbers)


def numbers(samples: list[uio.Sample]) -> dict[str, Any]:
    keys = [sample["key"] for sample in samples]
    return {"keys": keys, "labels": torch.tensor([int(key[1:]) for key in keys])}


def loader(corpus: Corpus, steps: int | None, **options: Any) -> uio.Loader:
    return uio.Loader(pipeline(corpus), seed=3, lanes=4, steps_per_epoch=steps, **options)


# The same batches as the Trainer's own loader makes


def test_batches_are_those_of_the_trainers_own_loader(many_shards: Corpus, tmp_path: Path) -> None:
    """Its own loads utterances that soundfile and torchaudio made, pads them by a collator, and shuffles nothing."""
    kaldi = pytest.importorskip("torchaudio.compliance.kaldi", reason="could not import torchaudio")
    utterances = []
    for shard in (line for line in many_shards.list.read_text().splitlines() if line[:1] not in ("", "#")):
        with tarfile.open(shard) as tar:
            for member in (member for member in tar if member.name.endswith(".wav")):
                wave, rate = soundfile.read(tar.extractfile(member), dtype="int16")
                feat = kaldi.fbank(torch.tensor(wave)[None].float(), num_mel_bins=6, sample_frequency=rate)
                utterances.append({"feat": feat})

    class InOrder(transformers.Trainer):  # type: ignore[misc, name-defined]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    def padded(samples: list[dict[str, torch.Tensor]]) -> dict[str, Any]:
        feats = [sample["feat"] for sample in samples]
        lengths = torch.tensor([len(feat) for feat in feats])
        return {"feats": torch.nn.utils.rnn.pad_sequence(feats, batch_first=True), "feats_lengths": lengths}

    graph = uio.from_shard_list(many_shards.list).decode_audio().fbank(6)
    given = {"per_device_train_batch_size": 4, "remove_unused_columns": False, **QUIET}
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=12, **given)
    own = InOrder(Model(), arguments, train_dataset=utterances, data_collator=padded).get_train_dataloader()
    graph = graph.batch(4).pad(order="kept", lengths="int64", names={"keys": None})
    ours = Ours(tmp_path, uio.Loader(graph, num_workers=1), max_steps=12, remove_unused_columns=False)
    count = 0
    for one, other in zip(own, ours.get_train_dataloader(), strict=False):
        assert one.keys() <= other.keys()
        assert torch.equal(one["feats_lengths"], other["feats_lengths"])
        torch.testing.assert_close(one["feats"], other["feats"], rtol=0, atol=1e-4)
        count += 1
    assert count == 12


# Resuming


@pytest.mark.parametrize(
    ("steps", "accumulated", "workers"),
    [(4, 1, 0), (5, 2, 0), (None, 1, 0), (4, 1, 1)],
    ids=["epochs of four", "an epoch that ends within an update", "of unknown length", "a worker"],
)
def test_every_checkpoint_resumes_exactly(
    many_shards: Corpus, tmp_path: Path, steps: int | None, accumulated: int, workers: int
) -> None:
    """48 utterances are 24 batches; epochs of unknown length end in the middle of the training."""
    options = {"max_steps": 27 if steps is None else 7, "gradient_accumulation_steps": accumulated}
    made = {"num_workers": workers}
    whole = Ours(tmp_path / "run", loader(many_shards, steps, **made), **options)
    whole.train()
    checked = range(1, 7) if steps and not workers else (3, 23, 24, 25) if steps is None else (3, 4)
    batches = list(range(0, 60))
    for step in checked:
        checkpoint = tmp_path / "run" / f"checkpoint-{step}"
        resumed = Ours(tmp_path / "again", loader(many_shards, steps, **made), **{**options, "save_strategy": "no"})
        resumed.train(str(checkpoint))
        left = len(resumed.model.noise)
        assert resumed.model.seen == whole.model.seen[-len(resumed.model.seen) :] or not left, f"after step {step}"
        assert resumed.model.noise == whole.model.noise[-left:] or not left, f"after step {step}"
        assert resumed.state.global_step == whole.state.global_step
        assert left == len(whole.model.noise) - batches[_batches_until(step, steps, accumulated)]
        for one, other in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(one, other), f"after step {step}"


@pytest.mark.parametrize("size", [{"batch_size": 2}, {"max_frames": 50}], ids=str)
def test_epochs_of_known_length_are_all_trained_on(tmp_path: Path, size: dict[str, int]) -> None:
    """The Trainer takes as many batches as it was told, and does not ask for the end. By frames, epochs differ."""
    samples = [{"key": f"U{n:02}", "feat": np.zeros((3 + 5 * n % 23, 4), np.float32)} for n in range(24)]

    def made() -> uio.Loader:
        mixed = uio.from_iterable(samples).sharding_filter().shuffle(24)
        graph = mixed.batch(2) if "batch_size" in size else mixed.dynamic_batch(max_frames=50)
        return uio.Loader(labelled(graph), seed=3, lanes=2)

    told, options = len(made()), {"num_train_epochs": 4}
    whole = Ours(tmp_path / "run", made(), **options)
    whole.train()
    assert whole.state.global_step == 4 * told
    counts = Counter(whole.model.seen)
    assert len(counts) == 24
    assert set(counts.values()) <= ({4} if "batch_size" in size else {3, 4, 5})
    for step in (told, told + 1, 2 * told, 3 * told - 1):
        resumed = Ours(tmp_path / "again", made(), save_strategy="no", **options)
        resumed.train(str(tmp_path / "run" / f"checkpoint-{step}"))
        assert resumed.model.seen == whole.model.seen[-len(resumed.model.seen) :], f"after step {step}"
        assert len(resumed.model.noise) == 4 * told - step


def _batches_until(step: int, steps: int | None, accumulated: int) -> int:
    if steps is None:
        return step
    updates = -(-steps // accumulated)
    return step // updates * steps + min(step % updates * accumulated, steps)


def test_true_takes_the_newest_complete_checkpoint(many_shards: Corpus, tmp_path: Path) -> None:
    whole = Ours(tmp_path, loader(many_shards, 4), max_steps=3)
    whole.train()
    (tmp_path / "checkpoint-3" / FILE).unlink()
    resumed = Ours(tmp_path, loader(many_shards, 4), max_steps=3, save_strategy="no")
    resumed.train(resume_from_checkpoint=True)
    assert resumed.model.seen == whole.model.seen[4:]
    with pytest.raises(uio.PipelineError, match=r"checkpoint-3 has no uio_loader\.json.*Go on from another one"):
        Ours(tmp_path, loader(many_shards, 4), max_steps=3).train(str(tmp_path / "checkpoint-3"))
    with pytest.raises(ValueError, match="No valid checkpoint"):
        Ours(tmp_path / "none", loader(many_shards, 4), max_steps=3).train(resume_from_checkpoint=True)


def test_a_plain_loader_cannot_be_passed_over(many_shards: Corpus, tmp_path: Path) -> None:
    class Plain(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return loader(many_shards, 4)

    Ours(tmp_path, loader(many_shards, 4), max_steps=3).train()
    arguments = transformers.TrainingArguments(str(tmp_path), max_steps=5, **QUIET)
    with pytest.raises(AttributeError, match=r"uio\.HFTrainerMixin saves and loads it"):
        Plain(Model(), arguments).train(str(tmp_path / "checkpoint-3"))


def test_a_plain_loader_that_skips_nothing_begins_no_epoch_again(many_shards: Corpus, tmp_path: Path) -> None:
    """With ignore_data_skip the Trainer leaves the position to the loader, which must have been given its state."""
    given, states = [loader(many_shards, 4)], {}

    class Plain(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return given[0]

    class Keeps(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, arguments: Any, state: Any, control: Any, **_: Any) -> None:
            states[state.global_step] = given[0].state_dict()

    def trained(**options: Any) -> Any:
        arguments = transformers.TrainingArguments(
            str(tmp_path), save_steps=1, ignore_data_skip=True, **QUIET, **options
        )
        return Plain(Model(), arguments, callbacks=[Keeps()])

    whole = trained(max_steps=6)
    whole.train()
    for step in (3, 4):
        given[0] = loader(many_shards, 4)
        with pytest.raises(uio.PipelineError, match=rf"resumes at step {step}, in epoch {step // 4}, .*HFTrainerMixin"):
            trained(max_steps=6).train(str(tmp_path / f"checkpoint-{step}"))
        given[0].load_state_dict(states[step])
        resumed = trained(max_steps=6, save_strategy="no")
        resumed.train(str(tmp_path / f"checkpoint-{step}"))
        assert resumed.model.seen == whole.model.seen[-len(resumed.model.seen) :]
        assert len(resumed.model.seen) == len(whole.model.seen) * (6 - step) // 6


# What goes to the model


def test_wrong_datasets_and_names(many_shards: Corpus, tmp_path: Path) -> None:
    graph = pipeline(many_shards)
    with pytest.raises(uio.PipelineError, match=r"train_dataset is a pipeline: give a loader"):
        Ours(tmp_path, graph, max_steps=1).train()
    with pytest.raises(uio.PipelineError, match=r"eval_dataset is a Loader: give its pipeline"):
        Ours(tmp_path, loader(many_shards, 1), loader(many_shards, 1), max_steps=1).evaluate()
    nameless = uio.from_shard_list(many_shards.list).decode_audio().batch(2).pad(names={"keys": "ids"})
    with pytest.raises(uio.PipelineError, match=r"the model takes keys, .* has ids, pcm, .*names=\{'feats': "):
        Ours(tmp_path, uio.Loader(nameless), max_steps=1).train()
    with pytest.raises(uio.PipelineError, match=r"a dict of tensors, not a list: end the pipeline with \.pad\(\)"):
        Ours(tmp_path, uio.Loader(uio.from_shard_list(many_shards.list).batch(2)), max_steps=1).train()
    with pytest.raises(uio.PipelineError, match=r"Loader\(…, steps_per_epoch=…\), or .*max_steps=…\); .*uio index"):
        Ours(tmp_path, loader(many_shards, None), num_train_epochs=2)
    with pytest.raises(uio.PipelineError, match=r"EvaluationLoader: uneven cannot be set for an evaluation"):
        uio.EvaluationLoader(graph, uneven="stop")
    with pytest.raises(uio.PipelineError, match=r"call gather only after this loader"):
        uio.EvaluationLoader(graph).gather(torch.zeros(2))


def test_labels_padded_by_minus_one_are_refused_for_a_model_of_hugging_face(tmp_path: Path) -> None:
    trainer, batch = Ours(tmp_path, None), {"number": torch.zeros(2), "labels": torch.tensor([[3, 4], [5, -1]])}
    assert trainer._takes(batch) == batch
    trainer.model.main_input_name = "number"  # as theirs have one; models of your own may take -1 for padding
    with pytest.raises(uio.PipelineError, match=r"labels contain -1, .* only -100 .*: \.pad\(value={'target': -100}"):
        trainer._takes(batch)


def test_several_evaluations_each_from_the_beginning(many_shards: Corpus, tmp_path: Path) -> None:
    every = sorted(int(key[1:]) for key in many_shards.keys)
    both = {"a": pipeline(many_shards), "b": uio.EvaluationLoader(pipeline(many_shards))}
    trainer = Ours(tmp_path, loader(many_shards, 1), both, max_steps=1)
    for _ in range(2):
        found = trainer.predict(both["a"])
        assert sorted(found.predictions.tolist()) == every
        assert found.metrics["test_samples_per_second"] > 0
        metrics = trainer.evaluate()
        assert metrics["eval_a_count"] == metrics["eval_b_count"] == len(every)
        assert metrics["eval_a_equal"]
        assert metrics["eval_a_loss"] == pytest.approx(metrics["eval_b_loss"])


# A pipeline as the Trainer's dataset


class Trained(transformers.Trainer):  # type: ignore[misc, name-defined]
    """A Trainer that deals out a dataset itself."""

    def __init__(self, folder: Path, data: Any, **options: Any) -> None:
        given = {"max_steps": 10, "save_strategy": "steps", "save_steps": 3, **options}
        arguments = transformers.TrainingArguments(
            str(folder), remove_unused_columns=False, per_device_train_batch_size=2, per_device_eval_batch_size=2,
            **QUIET, **given,
        )  # fmt: skip
        super().__init__(Model(), arguments, train_dataset=data)


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
                with pytest.raises(uio.PipelineError, match=r"resumes in epoch 1 .* with \.repeat\(\)"):
                    resumed.train(checkpoint)
            else:
                resumed.train(checkpoint)
                assert resumed.model.seen == whole.model.seen[2 * step :]


# Several ranks


def main(settings: dict[str, Any]) -> None:
    accelerate.PartialState(cpu=True)  # begins the process group
    folder = Path(settings["folder"])
    found = MODES[settings["mode"]](folder, settings["list"])
    rank = int(os.environ["RANK"])
    (folder / f"{settings['mode']}{rank}.json").write_text(json.dumps(found))


def deal(folder: Path, path: str) -> Any:
    found = {}
    for partition in (True, False):
        dataset = uio.from_shard_list(path).map(numbered).as_dataset(partition=partition)
        trainer = Trained(folder / "run", dataset, max_steps=3, save_strategy="no")
        try:
            trainer.train()
            predicted = trainer.predict(dataset).predictions[-1]
            found[str(partition)] = [trainer.model.seen[:12], predicted.tolist()]
        except uio.PipelineError as error:
            found[str(partition)] = [str(error)]
    return found


def train(folder: Path, path: str) -> Any:
    """Train and save; then evaluate with batches of other sizes on each rank, and with a rank that has no share."""
    trainer = Ours(folder / "run", uio.Loader(pipeline(path), seed=3, lanes=4, steps_per_epoch=5), max_steps=7)
    trainer.train()
    graph = uio.from_shard_list(path).decode_audio().fbank(4)
    found = [trainer.predict(labelled(graph.dynamic_batch(max_frames=200))).predictions.tolist()]
    found += [trainer.predict(labelled(uio.from_shard_list(path_of_first(path)).batch(2))).predictions.tolist()]
    few = uio.EvaluationLoader(labelled(graph.batch(100)), lanes=2)
    loss = [float(one) for batch in few for one in few.gather(torch.tensor([float(len(batch["keys"]))] * 3))]
    return {"seen": trainer.model.seen, "predicted": found, "loss": loss}


class Loss(torch.nn.Module):
    """A mean over those labels that are not -100; it divides by the number that it is given only if it ``counts``."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.counts, self.weight = counts, torch.nn.Parameter(torch.ones(()))

    def forward(self, labels: Any, **options: Any) -> dict[str, torch.Tensor]:
        known = labels[labels >= 0] * self.weight
        number = options.get("num_items_in_batch") if self.counts else None
        return {"loss": known.mean() if number is None else known.sum() / number, "logits": labels}


def loss(folder: Path, path: str) -> Any:
    """Train on six batches of unequal numbers of labels, two for each update, and evaluate them; of each kind."""
    world = int(os.environ["WORLD_SIZE"])
    graph = uio.from_shard_list(path).batch(6).pad(collate=of_unequal_lengths)
    found = []
    for counts in (True, False):
        arguments = transformers.TrainingArguments(
            str(folder), max_steps=3, logging_steps=1, learning_rate=0.0, save_strategy="no", use_cpu=True,
            report_to=[], disable_tqdm=True, gradient_accumulation_steps=2 // world,
        )  # fmt: skip
        trainer = Plain(
            Loss(counts),
            arguments,
            train_dataset=uio.Loader(graph, lanes=4),
            eval_dataset=uio.EvaluationLoader(graph, lanes=4),
        )
        trainer.train()
        logged = [(line["loss"], line["grad_norm"]) for line in trainer.state.log_history if "loss" in line]
        found += [logged, trainer.evaluate()["eval_loss"]]
    return found


class Plain(uio.HFTrainerMixin, transformers.Trainer):  # type: ignore[misc, name-defined]
    pass


def of_unequal_lengths(samples: list[uio.Sample]) -> dict[str, Any]:
    numbers = torch.tensor([int(sample["key"][1:]) for sample in samples])
    labels = numbers[:, None].expand(-1, 9).clone()
    labels[torch.arange(9) > numbers[:, None] % 9] = -100
    return {"labels": labels}


def whisper(folder: Path, path: str) -> Any:
    """The recipe, which changes no weight at a rate of 0: its losses are those of the same model everywhere."""
    from recipes.whisper.finetune import main

    out = folder / f"of{os.environ['WORLD_SIZE']}"
    main(path, path, out, dictionary=folder / "data/lang_char.txt", steps=4, every=4, rate=0.0, device="cpu")
    return json.loads((out / "checkpoint-4" / "trainer_state.json").read_text())["log_history"]


MODES = {"deal": deal, "train": train, "loss": loss, "whisper": whisper}


def path_of_first(path: str) -> str:
    """Return the path of a list with the first shard alone, so that one rank has no share."""
    return str(Path(path).with_name("first.list"))


def on_ranks(world: int, mode: str, corpus: Corpus, folder: Path) -> list[Any]:
    return told_by_ranks(world, __file__, mode, corpus.list, folder, HEAVY)


def test_utterances_are_dealt_out_once(many_shards: Corpus, tmp_path: Path) -> None:
    found = on_ranks(2, "deal", many_shards, tmp_path)
    for one in found:
        assert "as_dataset(partition=False)" in one["True"][0]
        assert sorted(one["False"][1]) == sorted(int(key[1:]) for key in many_shards.keys)
    assert not set(found[0]["False"][0]) & set(found[1]["False"][0])


def test_two_ranks_evaluate_every_utterance_once_and_one_goes_on(many_shards: Corpus, tmp_path: Path) -> None:
    every = Counter(int(key[1:]) for key in many_shards.keys)
    first = next(line for line in Path(many_shards.list).read_text().splitlines() if line and line[0] != "#")
    Path(path_of_first(str(many_shards.list))).write_text(first + "\n")
    found = on_ranks(2, "train", many_shards, tmp_path)
    for one in found:
        assert Counter(one["predicted"][0]) == every
        assert sorted(one["predicted"][1]) == sorted(every)[: len(one["predicted"][1])]
        assert one["predicted"][1]
        assert len(one["loss"]) == len(many_shards.keys)
    seen = [one["seen"] for one in found]
    alone = Ours(tmp_path / "alone", loader(many_shards, 5), max_steps=20, save_strategy="no")
    alone.train(str(tmp_path / "run" / "checkpoint-3"))
    stream = [number for batch in loader(many_shards, 23) for number in batch["labels"].tolist()]
    assert Counter(seen[0][:6] + seen[1][:6]) == Counter(stream[:12]), "three steps of two ranks are six batches"
    assert alone.model.seen == stream[12:]


def test_losses_do_not_depend_on_the_number_of_processes(many_shards: Corpus, tmp_path: Path) -> None:
    """Two updates of accumulated batches are those of two ranks; losses that count their labels, and others."""
    (alone,), (first, second) = (on_ranks(world, "loss", many_shards, tmp_path) for world in (1, 2))
    assert first == second
    for one, other in zip(alone, first, strict=True):
        assert np.allclose(one, other, rtol=1e-5)
    (counted, _), (ignored, _) = alone[0][0], alone[2][0]
    assert 0 < abs(counted - ignored) < counted / 2, "a mean over all labels, and one of the means of batches"


# A kill


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_recipe_has_the_same_losses_on_two_processes(many_shards: Corpus, tmp_path: Path) -> None:
    pytest.importorskip("jiwer")
    example(tmp_path)
    (alone,), (of_two, _) = (on_ranks(world, "whisper", many_shards, tmp_path) for world in (1, 2))
    for name, tolerance in (("eval_loss", 1e-5), ("eval_cer", 1e-9), ("loss", 0.05), ("grad_norm", 0.5)):
        one, other = (np.mean([line[name] for line in lines if name in line]) for lines in (alone, of_two))
        assert one == pytest.approx(other, rel=tolerance), name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_recipe_killed_and_resumed_has_equal_losses(tmp_path: Path) -> None:
    pytest.importorskip("jiwer")
    example(tmp_path)
    whole, killed = (tmp_path / name for name in ("whole", "killed"))
    _finetune(tmp_path, whole).wait(300)
    running = _finetune(tmp_path, killed)
    try:
        while not (killed / "checkpoint-8" / FILE).exists():
            assert running.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
    finally:
        kill_inside(tmp_path)
        running.wait(30)
    assert not (killed / "checkpoint-24").exists()
    assert _finetune(tmp_path, killed).wait(300) == 0
    assert _losses(killed) == _losses(whole)
    assert len(_losses(whole)) == 24 + 6, "each step, and each evaluation"


def example(folder: Path) -> None:
    done = run_uio("example", ".", cwd=folder)
    assert done.returncode == 0, done.stderr


def _finetune(folder: Path, out: Path) -> subprocess.Popen[bytes]:
    options = "--dictionary data/lang_char.txt --steps 24 --every 4 --epoch 10 --device cpu --rate 1e-3 --num-workers 1"
    lists = ["data/shards.list", "data/shards.list", str(out)]
    FORKS.prepare(*HEAVY)
    command = [str(FORKS.stand_ins() / "python"), "-m", "recipes.whisper.finetune", *lists, *options.split()]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _losses(folder: Path) -> list[Any]:
    logged = json.loads((folder / "checkpoint-24" / "trainer_state.json").read_text())["log_history"]
    return [[line.get(name) for name in ("step", "loss", "grad_norm", "eval_loss", "eval_cer")] for line in logged]


if __name__ == "__main__":
    import test_hf_trainer

    test_hf_trainer.main(json.loads(sys.argv[1]))
