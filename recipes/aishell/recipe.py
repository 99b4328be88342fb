"""The stages of the recipe, made of what the command line says (``run``)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..common.config import Config
from ..common.data_types import DATA_TYPES, list_of
from ..common.launch import Topology, launch
from ..common.stages import Need, Stage
from .layout import SPLITS, CorpusMissing, corpus_dir, transcript_path
from .summary import MODES

__all__ = ["Recipe", "WrongOption"]


class WrongOption(ValueError):
    """An option cannot be what it is; the message says what it can be."""


@dataclass(frozen=True)
class Recipe:
    """What the command line says, and the stages made of it."""

    corpus: Path
    mini: bool
    out: Path
    config: Path
    overrides: tuple[str, ...]
    data_type: str
    topology: Topology
    num_workers: int
    hours: float
    seed: int
    mirror: str
    bpe: int
    average: int
    beam_size: int

    def __post_init__(self) -> None:
        if self.data_type not in DATA_TYPES:
            raise WrongOption(f"--data-type must be {', '.join(DATA_TYPES)}, not {self.data_type!r}")
        self.settings  # noqa: B018  a wrong configuration is told at once

    @property
    def data(self) -> Path:
        return self.out / "data"

    @property
    def exp(self) -> Path:
        return self.out / self.data_type

    @cached_property
    def settings(self) -> Config:
        return Config.load(self.config, self._overrides)

    @property
    def _overrides(self) -> list[str]:
        workers = [] if self.num_workers < 0 else [f"data.num_workers={self.num_workers}"]
        return [*workers, *self.overrides]

    @property
    def stages(self) -> list[Stage]:
        """All of them, in their order."""
        spoken = ((-1, transcript_path(corpus_dir(self.corpus))),) if self.mini else ()
        return [
            Stage(-1, "data", self.get_data),
            Stage(0, "wav.scp and text", self.write_texts, spoken),
            Stage(1, "global CMVN", self.make_cmvn, self._texts("train")),
            Stage(2, "dictionary", self.make_dictionary, self._texts("train")),
            Stage(3, "data.list, shards or TouchDatasets", self.make_lists, self._texts(*SPLITS)),
            Stage(4, f"training ({self.data_type})", self.train, self._prepared),
            Stage(5, "averaging, decoding, scoring", self.decode, ((4, self.exp / "epochs"), *self._test)),
            Stage(6, "export", self.export, ((5, self.exp / "average.pt"), *self._test)),
        ]

    def _texts(self, *splits: str) -> tuple[Need, ...]:
        return tuple((0, self.data / split / name) for split in splits for name in ("text", "wav.scp"))

    def _list(self, split: str) -> Need:
        return 3, Path(list_of(self.data, split, self.data_type))

    @property
    def _prepared(self) -> tuple[Need, ...]:
        cmvn = ((1, self.data / "global_cmvn"),) if self.settings.model.cmvn else ()
        return (*cmvn, (2, self.data / "dict" / "lang_char.txt"), self._list("train"), self._list("dev"))

    @property
    def _test(self) -> tuple[Need, ...]:
        return (0, self.data / "test" / "text"), self._list("test")

    def get_data(self) -> str:
        if self.mini:
            from .mini import make_mini
            from .plan import settings_for

            new = make_mini(self.corpus, settings_for(self.hours, self.seed))
        elif not self.corpus.is_dir():  # 15.6 GB do not go where a slip of the finger says
            raise CorpusMissing(f"there is no folder {self.corpus}: make it (mkdir) to have AISHELL-1 fetched there")
        else:
            from .download import OPENSLR, download, mirrored

            new = download(self.corpus, mirrored(self.mirror or OPENSLR))
        return f"{corpus_dir(self.corpus)}: {'complete' if new else 'there already'}"

    def write_texts(self) -> str:
        from .prepare import write_texts

        return write_texts(self.corpus, self.data)

    def make_cmvn(self) -> str:
        from .prepare import make_cmvn

        return make_cmvn(self.data, self.settings.model.num_mel_bins, os.cpu_count() or 1)

    def make_dictionary(self) -> str:
        from .prepare import make_dictionary

        return make_dictionary(self.data, self.bpe)

    def make_lists(self) -> str:
        from .prepare import make_indexed, make_lists, make_shards

        lists = make_lists(self.data)
        if self.data_type == "raw":
            return lists
        packed = make_shards(self.data) if self.data_type == "shard" else make_indexed(self.data)
        return f"{lists}\n{packed}"

    def train(self) -> str:
        overrides = [word for text in self._overrides for word in ("--set", text)]
        options = ["--config", str(self.config), "--data-type", self.data_type, *overrides]
        launch(self.topology, "recipes.common.train", [str(self.data), str(self.exp), *options], self.exp)
        return f"{self.exp}: epochs/, checkpoints/, tensorboard/ (tensorboard --logdir {self.exp / 'tensorboard'})"

    def decode(self) -> str:
        from ..common.average import average, choose
        from ..common.score import write_report

        wrote = [str(average(self.exp, choose(self.exp, best=self.average)))]
        few = self.mini and self.num_workers < 0  # starting them takes longer than the mini corpus
        workers = ["--num-workers", "0" if few else str(self.settings.data.num_workers)]
        for mode in self.modes:
            options = ["--mode", mode, "--beam-size", str(self.beam_size), "--data-type", self.data_type, *workers]
            launch(self.topology, "recipes.common.decode", [str(self.data), str(self.exp), *options], self.exp)
            hypothesis = self.exp / f"test.{mode}.hyp"
            report = hypothesis.with_suffix(".cer")
            score = write_report(report, self.data / "test" / "text", hypothesis)
            wrote.append(f"{hypothesis}, {report.name}: CER {score}")
        return "\n".join(wrote)

    @property
    def modes(self) -> tuple[str, ...]:
        """Those that the model can do."""
        return MODES if self.settings.model.decoder_layers else MODES[:2]

    def export(self) -> str:
        check = ["--check", list_of(self.data, "test", self.data_type), "--data-type", self.data_type]
        launch(Topology(1), "recipes.common.export", [str(self.exp), *check], self.exp)
        return f"{self.exp / 'export'}: see recipes/common/export.py for inputs and outputs"
