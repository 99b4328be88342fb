"""The stages of a recipe whose corpus has a file for each utterance: AISHELL-1, LibriSpeech."""

from __future__ import annotations

import os
from abc import abstractmethod
from argparse import Namespace
from pathlib import Path
from typing import ClassVar

from uio_pipes.tools.data.writing.cutting import Form

from . import driver
from .data_types import DATA_TYPES
from .launch import Topology, launch
from .stages import Need, Stage

__all__ = ["Recipe"]


class Recipe(driver.Recipe):
    """One run of such a recipe. A subclass says how to get the corpus and how to write ``wav.scp`` and ``text``.

    ``held_out``: the parts that only validate; with ``tests`` and "train" these are all parts.
    """

    name: ClassVar[str]  # of the recipe
    held_out: ClassVar[tuple[str, ...]] = ("dev",)
    averaged: ClassVar[int]  # epochs, by default, of the real corpus
    form: ClassVar[Form] = "wav"  # of the recordings in shards

    def __init__(self, options: Namespace, home: Path, out: Path) -> None:
        if options.data_type not in DATA_TYPES:
            raise ValueError(f"--data-type must be {', '.join(DATA_TYPES)}, not {options.data_type!r}")
        mini = Path("exp") / f"{self.name}-mini"
        super().__init__(options, home, mini if options.corpus == "mini" else out, options.data_type)
        self.average = options.average or (3 if self.mini else self.averaged)
        self.seed: int = options.seed
        self.mirror: str = options.mirror

    @property
    def parts(self) -> tuple[str, ...]:
        """The folders of ``data``."""
        return ("train", *self.held_out, *self.tests)

    @property
    def modes(self) -> tuple[str, ...]:
        return driver.MODES if self.settings.model.decoder_layers else driver.CTC_MODES

    @abstractmethod
    def spoken(self) -> Path:
        """Return a file of the mini corpus that is there when it is complete."""

    @abstractmethod
    def get_data(self) -> str:
        """Stage -1: speak or download the corpus, if it is not there."""

    @abstractmethod
    def write_texts(self) -> str:
        """Stage 0: write ``wav.scp`` and ``text`` of all parts."""

    def stages(self) -> list[Stage]:
        spoken = ((-1, self.spoken()),) if self.mini else ()
        tests = tuple(need for part in self.tests for need in ((0, self.data / part / "text"), self.need_list(part)))
        return [
            Stage(-1, "data", self.get_data),
            Stage(0, "wav.scp and text", self.write_texts, spoken),
            Stage(1, "global CMVN", self.make_cmvn, self._texts("train")),
            Stage(2, "dictionary", self.make_dictionary, self._texts("train")),
            Stage(3, "data.list, shards or TouchDatasets", self.make_lists, self._texts(*self.parts)),
            Stage(4, f"training ({self.data_type})", self.train, self.needs_of_training()),
            Stage(5, "averaging, decoding, scoring", self.decode, ((4, self.exp / "epochs"), *tests)),
            Stage(6, "export", self.export, ((5, self.exp / "average.pt"), *tests)),
        ]

    def _texts(self, *parts: str) -> tuple[Need, ...]:
        return tuple((0, self.data / part / name) for part in parts for name in ("text", "wav.scp"))

    def need_list(self, part: str) -> Need:
        return 3, Path(self.list_path(part))

    def make_cmvn(self) -> str:
        from .prepare import make_cmvn

        return make_cmvn(self.data, self.settings.model.num_mel_bins, os.cpu_count() or 1)

    def make_dictionary(self) -> str:
        from .prepare import bpe_pieces, make_dictionary, write_characters

        return make_dictionary(self.data, bpe_pieces(self.bpe) if self.bpe else write_characters)

    def make_lists(self) -> str:
        from .prepare import make_indexed, make_lists, make_shards

        lists = make_lists(self.data, self.parts)
        if self.data_type == "raw":
            return lists
        shards = self.data_type == "shard"
        packed = make_shards(self.data, self.parts, form=self.form) if shards else make_indexed(self.data, self.parts)
        return f"{lists}\n{packed}"

    def train(self) -> str:
        self.launch_training()
        return f"{self.exp}: epochs/, checkpoints/, tensorboard/ (tensorboard --logdir {self.exp / 'tensorboard'})"

    def decode(self) -> str:
        from .average import average, choose

        wrote = [str(average(self.exp, choose(self.exp, best=self.average)))]
        for part in self.tests:
            for report, score in self.decode_and_score(part):
                wrote.append(f"{report.with_suffix('.hyp')}, {report.name}: {self.rate} {score}")
        return "\n".join(wrote)

    def export(self) -> str:
        check = ["--check", self.list_path(self.tests[0]), "--data-type", self.data_type]
        launch(Topology(1), "recipes.common.export", [str(self.exp), *check], self.exp)
        return f"{self.exp / 'export'}: see recipes/common/export.py for inputs and outputs"
