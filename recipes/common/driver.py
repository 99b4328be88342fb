"""The driver of the recipes: from the command line to numbered stages, and the stages that all recipes share."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import typer

from .config import Config
from .data_types import list_of
from .launch import Topology, launch
from .stages import Need, Stage, check_order, run_stages

if TYPE_CHECKING:
    from .score import Score

__all__ = ["CTC_MODES", "MODES", "Recipe", "run_recipe"]

CTC_MODES = ("ctc_greedy_search", "ctc_prefix_beam_search")  # a model without a decoder can do these
MODES = (*CTC_MODES, "attention", "attention_rescoring")


class Recipe(ABC):
    """One run of a recipe, as the command line describes it. A subclass adds its own options and lists the stages.

    ``home`` is the recipe's folder, with ``conf/mini.yaml`` and ``conf/full.yaml``; ``exp`` is the folder of the
    experiment within ``out``, to which the name of another encoder than the Conformer is added. Raises: ValueError if
    an option has a value that it cannot have.
    """

    tests: ClassVar[tuple[str, ...]]  # the parts that are decoded
    words: ClassVar[bool] = False  # errors are counted by words, not by characters

    def __init__(self, options: Namespace, home: Path, out: Path, exp: str) -> None:
        self.mini = options.corpus == "mini"
        self.out: Path = options.out or out
        self.corpus = self.out / "corpus" if self.mini else Path(options.corpus)
        self.data = self.out / "data"
        self.config = _found(options.config, home) or home / "conf" / ("mini.yaml" if self.mini else "full.yaml")
        self.data_type: str = options.data_type
        self.topology = Topology(options.nproc or _gpus() or 2, options.nnodes, options.rdzv_endpoint)
        self.num_workers: int = options.num_workers
        workers = [] if self.num_workers < 0 else [f"data.num_workers={self.num_workers}"]
        self.overrides: list[str] = [*workers, *(options.override or ())]
        self.settings = Config.load(self.config, self.overrides)
        encoder = self.settings.model.encoder
        self.exp = self.out / (exp if encoder == "conformer" else f"{exp}_{encoder}")
        self.hours: float = options.hours
        self.bpe: int = options.bpe
        self.average: int = options.average
        self.beam_size: int = options.beam_size

    @abstractmethod
    def stages(self) -> list[Stage]:
        """Return all stages in their order."""

    @property
    @abstractmethod
    def modes(self) -> tuple[str, ...]:
        """The decoding modes; the model must be able to do them."""

    @abstractmethod
    def need_list(self, part: str) -> Need:
        """Return the list of a part of the corpus, in the form that training reads, and the stage that writes it."""

    def needs_of_training(self) -> tuple[Need, ...]:
        """Return what earlier stages must have written before training can start."""
        cmvn = ((1, self.data / "global_cmvn"),) if self.settings.model.cmvn else ()
        dictionary = 2, self.data / "dict" / "lang_char.txt"
        return (*cmvn, dictionary, self.need_list("train"), self.need_list("dev"))

    def list_path(self, part: str) -> str:
        """Return the path of the list of a part of the corpus, in the form that training reads."""
        return list_of(self.data, part, self.data_type)

    def launch_training(self, *lists: str) -> None:
        """Train on all ranks. ``lists``: options that name other lists than those of the data folder."""
        options = ["--config", str(self.config), "--data-type", self.data_type, *lists]
        options += [word for text in self.overrides for word in ("--set", text)]
        launch(self.topology, "recipes.common.train", [str(self.data), str(self.exp), *options], self.exp)

    def decode_and_score(self, part: str) -> Iterator[tuple[Path, Score]]:
        """Decode a part of the corpus in each mode; yield the report on each mode and its error rate."""
        from .score import write_report

        few = self.mini and self.num_workers < 0  # starting workers takes longer than decoding the mini corpus
        options = ["--split", part, "--beam-size", str(self.beam_size), "--data-type", self.data_type]
        options += ["--num-workers", "0" if few else str(self.settings.data.num_workers)]
        for mode in self.modes:
            arguments = [str(self.data), str(self.exp), "--mode", mode, *options]
            launch(self.topology, "recipes.common.decode", arguments, self.exp)
            report = self.report_path(part, mode)
            texts = self.data / part / "text", report.with_suffix(".hyp")
            yield report, write_report(report, *texts, words=self.words)

    @property
    def rate(self) -> str:
        """The name of the error rate."""
        return "WER" if self.words else "CER"

    def report_path(self, part: str, mode: str, exp: Path | None = None) -> Path:
        """Return the path of the report on one part and mode (``exp``: of another experiment); the texts are beside it,
        as ``.hyp``."""
        return (exp or self.exp) / f"{part}.{mode}.{self.rate.lower()}"


R = TypeVar("R", bound=Recipe)


def run_recipe(
    parser: ArgumentParser,
    recipe_of: Callable[[Namespace], R],
    print_summary: Callable[[R, dict[str, float]], None],
    arguments: Sequence[str] | None,
) -> None:
    """Run the stages that ``arguments`` (None: those of the command line) choose, then print a summary."""
    options = parser.parse_args(arguments)
    try:
        check_order(options.stage, options.stop_stage)
        recipe = recipe_of(options)
    except ValueError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    try:
        seconds = run_stages(recipe.stages(), options.stage, options.stop_stage, [parser.prog, *sys.argv[1:]])
    except typer.Exit as end:
        sys.exit(end.exit_code)
    print_summary(recipe, seconds)


def _found(config: Path | None, home: Path) -> Path | None:
    """Return the configuration that the user names, by a path from here or else from the recipe's folder."""
    if config is None or config.is_file():
        return config
    return home / config if (home / config).is_file() else config


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()
