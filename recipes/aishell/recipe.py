"""The stages of the AISHELL recipe, and the options that only it has (see ``options``)."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from ..common import driver
from ..common.corpus import CorpusMissing
from ..common.data_types import DATA_TYPES
from ..common.launch import Topology, launch
from ..common.stages import Need, Stage
from .layout import SPLITS, corpus_dir, transcript_path

__all__ = ["Recipe"]


class Recipe(driver.Recipe):
    """One run of the AISHELL recipe."""

    def __init__(self, options: Namespace) -> None:
        if options.data_type not in DATA_TYPES:
            raise ValueError(f"--data-type must be {', '.join(DATA_TYPES)}, not {options.data_type!r}")
        out = Path("exp/aishell-mini" if options.corpus == "mini" else "exp/aishell")
        super().__init__(options, Path(__file__).parent, out, options.data_type)
        self.average = options.average or (3 if self.mini else 30)
        self.seed: int = options.seed
        self.mirror: str = options.mirror

    def stages(self) -> list[Stage]:
        spoken = ((-1, transcript_path(corpus_dir(self.corpus))),) if self.mini else ()
        test = (0, self.data / "test" / "text"), self.need_list("test")
        return [
            Stage(-1, "data", self.get_data),
            Stage(0, "wav.scp and text", self.write_texts, spoken),
            Stage(1, "global CMVN", self.make_cmvn, self._texts("train")),
            Stage(2, "dictionary", self.make_dictionary, self._texts("train")),
            Stage(3, "data.list, shards or TouchDatasets", self.make_lists, self._texts(*SPLITS)),
            Stage(4, f"training ({self.data_type})", self.train, self.needs_of_training()),
            Stage(5, "averaging, decoding, scoring", self.decode, ((4, self.exp / "epochs"), *test)),
            Stage(6, "export", self.export, ((5, self.exp / "average.pt"), *test)),
        ]

    def _texts(self, *splits: str) -> tuple[Need, ...]:
        return tuple((0, self.data / split / name) for split in splits for name in ("text", "wav.scp"))

    def need_list(self, part: str) -> Need:
        return 3, Path(self.list_path(part))

    @property
    def modes(self) -> tuple[str, ...]:
        return driver.MODES if self.settings.model.decoder_layers else driver.CTC_MODES

    def get_data(self) -> str:
        if self.mini:
            from .mini import make_mini
            from .plan import settings_for

            new = make_mini(self.corpus, settings_for(self.hours, self.seed))
        elif not self.corpus.is_dir():  # a mistyped path must not fetch 15.6 GB to a new folder
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
        self.launch_training()
        return f"{self.exp}: epochs/, checkpoints/, tensorboard/ (tensorboard --logdir {self.exp / 'tensorboard'})"

    def decode(self) -> str:
        from ..common.average import average, choose

        wrote = [str(average(self.exp, choose(self.exp, best=self.average)))]
        for report, score in self.decode_and_score("test"):
            wrote.append(f"{report.with_suffix('.hyp')}, {report.name}: CER {score}")
        return "\n".join(wrote)

    def export(self) -> str:
        check = ["--check", self.list_path("test"), "--data-type", self.data_type]
        launch(Topology(1), "recipes.common.export", [str(self.exp), *check], self.exp)
        return f"{self.exp / 'export'}: see recipes/common/export.py for inputs and outputs"
