"""Fine-tune Whisper with Hugging Face's ``Seq2SeqTrainer`` on our loaders; the same command goes on after a kill::

    uio example .
    python -m recipes.whisper.finetune data/shards.list data/shards.list exp --dictionary data/lang_char.txt
    torchrun --nproc_per_node 8 -m recipes.whisper.finetune train.list dev.list tuned --model openai/whisper-small

Log-mel features are computed on the fly, in as many workers as ``--num-workers`` says. Each checkpoint has the state of
the loader beside that of the model, so a run that is killed anywhere, and started again, ends with the same losses.
Without ``--model`` it is a very small one with random weights over the characters of ``--dictionary``, to try things.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from transformers import (
    EvalPrediction,
    GenerationConfig,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    WhisperConfig,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
    set_seed,
)

import uio_pipes as uio
from recipes.common.score import score

NO_LOSS = -100
SMALL_SECONDS = 4.0  # that the small model hears


class Trainer(uio.HFTrainerMixin, Seq2SeqTrainer):  # type: ignore[misc]
    """Hugging Face's Trainer on our loaders: this is all that there is to it."""


class Characters:
    """Labels of the small model: characters, and the last symbol of the table as beginning and end."""

    def __init__(self, dictionary: Path) -> None:
        self.table = uio.CharTokenizer(dictionary)
        self.end = self.table.vocab_size - 1

    def __call__(self, text: str) -> list[int]:
        return [*self.table.tokenize(text)[1], self.end]

    def texts(self, rows: Any) -> list[str]:
        """Return the texts of rows of labels; padding and what is no character are left out."""
        return [self.table.detokenize([int(label) for label in row if 0 < label < self.end]) for row in rows]

    def __repr__(self) -> str:
        return f"Characters({self.table!r})"

    def model(self) -> WhisperForConditionalGeneration:
        """Return a very small model with random weights."""
        size: dict[str, Any] = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
        size |= {f"{part}_attention_heads": 2 for part in ("encoder", "decoder")}
        size |= {f"{part}_ffn_dim": 64 for part in ("encoder", "decoder")}
        special: dict[str, Any] = {"pad_token_id": 0} | {
            f"{name}_token_id": self.end for name in ("bos", "eos", "decoder_start")
        }
        positions: dict[str, Any] = {"max_source_positions": int(SMALL_SECONDS * 50), "max_target_positions": 64}
        config = WhisperConfig(
            vocab_size=self.table.vocab_size, dropout=0.1, begin_suppress_tokens=None, **size, **special, **positions
        )
        made = WhisperForConditionalGeneration(config)
        made.generation_config = GenerationConfig(**special)
        return made


class WhisperTokens:
    """Labels of a model of Whisper's: language and task, text, end. Its first token is added by the model itself."""

    def __init__(self, name: str, language: str) -> None:
        self.name, self.language = name, language
        self.table = WhisperTokenizer.from_pretrained(name, language=language, task="transcribe")

    def __call__(self, text: str) -> list[int]:
        return list(self.table(text).input_ids[1:])

    def texts(self, rows: Any) -> list[str]:
        """Return the texts of rows of labels."""
        rows = np.where(rows < 0, self.table.pad_token_id, rows)
        return list(self.table.batch_decode(rows, skip_special_tokens=True))

    def __repr__(self) -> str:
        return f"WhisperTokens({self.name!r}, {self.language!r})"

    def model(self) -> WhisperForConditionalGeneration:
        """Return the model with its published weights."""
        made = WhisperForConditionalGeneration.from_pretrained(self.name)
        made.generation_config.update(language=self.language, task="transcribe")
        return made


def batches(shards: str, tokens: Characters | WhisperTokens, seconds: float, bins: int, *, train: bool) -> uio.Pipeline:
    """Return a pipeline whose batches are what Whisper's ``forward`` takes: 8 utterances each."""
    pipeline = uio.from_shard_list(shards, shuffle=train).decode_audio().resample(16_000)
    if train:
        pipeline = pipeline.speed_perturb().filter(max_frames=int(seconds * 100)).shuffle(1_000)
    pipeline = pipeline.tokenize(tokens).log_mel_spectrogram(num_mel_bins=bins, pad_or_trim=True, max_duration=seconds)
    names = {"feats": "input_features", "target": "labels"}
    return pipeline.batch(8).pad(names=names, value={"target": NO_LOSS}, transpose=True)


def main(
    train: Annotated[str, typer.Argument(help="List of the shards to train on.")],
    dev: Annotated[str, typer.Argument(help="List of the shards to evaluate on.")],
    out: Annotated[Path, typer.Argument(help="Folder of the checkpoints; all ranks see it.")],
    model: Annotated[str, typer.Option(help="Name or folder of a model of Whisper's; none: a small one.")] = "",
    dictionary: Annotated[Path, typer.Option(help="Characters of the small model.")] = Path("data/lang_char.txt"),
    language: Annotated[str, typer.Option(help="Of a model of Whisper's.")] = "zh",
    steps: Annotated[int, typer.Option(help="Batches of each rank to train on.")] = 1_000,
    every: Annotated[int, typer.Option(help="Steps between two checkpoints, each after an evaluation.")] = 100,
    epoch: Annotated[int, typer.Option(help="Steps in what is called an epoch.")] = 500,
    num_workers: Annotated[int, typer.Option(help="Processes of each rank that make features.")] = 0,
    lanes: Annotated[int, typer.Option(help="Ordered streams: at least ranks × workers, also of later runs.")] = 8,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 1e-5,
    device: Annotated[str, typer.Option(help="auto, or cpu.")] = "auto",
) -> None:
    """Fine-tune, or go on where an earlier run was interrupted."""
    set_seed(1)  # for the random weights
    arguments = Seq2SeqTrainingArguments(
        str(out), max_steps=steps, learning_rate=rate, use_cpu=device == "cpu", report_to=[],
        logging_steps=1, logging_nan_inf_filter=False,
        save_steps=every, save_total_limit=2, eval_strategy="steps", eval_steps=every,
        predict_with_generate=True, generation_max_length=32 if not model else 225,
    )  # fmt: skip
    tokens = WhisperTokens(model, language) if model else Characters(dictionary)
    network = tokens.model()
    seconds = network.config.max_source_positions / 50
    bins = network.config.num_mel_bins

    def error_rate(found: EvalPrediction) -> dict[str, float]:
        pairs = zip(tokens.texts(found.label_ids), tokens.texts(found.predictions), strict=True)
        texts = {str(number): pair for number, pair in enumerate(pairs)}
        counts = score({k: pair[0] for k, pair in texts.items()}, {k: pair[1] for k, pair in texts.items()})
        return {"cer": counts.cer, "utterances": len(texts)}

    # the same lanes make the same batches, and so the same loss, on any number of processes
    evaluated: Any = uio.EvaluationLoader(batches(dev, tokens, seconds, bins, train=False), lanes=lanes)
    trainer = Trainer(
        network,
        arguments,
        train_dataset=uio.Loader(
            batches(train, tokens, seconds, bins, train=True),
            seed=1,
            num_workers=num_workers,
            lanes=lanes,
            steps_per_epoch=epoch,
        ),
        eval_dataset=evaluated,
        compute_metrics=error_rate,
    )
    trainer.train(resume_from_checkpoint=any(out.glob("checkpoint-*/uio_loader.json")))


if __name__ == "__main__":
    typer.run(main)
