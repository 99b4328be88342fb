"""What each stage of the recipe does. Each can be run again: it goes on where it was interrupted, and returns what to
say of what it wrote. Training, averaging, decoding and export are commands of ``recipes.common``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from ..common.config import Config
from ..common.files import write_lines
from ..common.grouping import Group
from ..common.launch import Topology, launch
from ..common.stages import Stage
from .layout import TEST_SUBSETS, check_corpus
from .mini import make_mini
from .pack import pack_all, selected
from .plan import Settings as MiniSettings
from .prepare import prepare
from .serve import Kind, serve

Source = Literal["disk", "s3", "http"]
_RATE = re.compile(r"Overall -> ([\d.]+ %)")
HELD_OUT = tuple(TEST_SUBSETS.values())
CMVN_UTTERANCES = 200_000  # of the training set, evenly spread: as good as all 15 million, and minutes instead of days


@dataclass(frozen=True)
class Recipe:
    """One run of the recipe. ``corpus`` is None for the mini corpus."""

    out: Path
    corpus: Path | None
    config: Path
    data_type: Literal["raw", "shard"]
    subset: str
    source: Source
    groups: tuple[Group, ...]
    train_groups: tuple[Group, ...]
    shard_size: int
    hours: float
    minutes: float
    jobs: int
    topology: Topology
    modes: tuple[str, ...]
    average: int
    beam_size: int
    bpe: int
    override: tuple[str, ...]

    @property
    def root(self) -> Path:
        """The corpus."""
        return self.out / "corpus" if self.corpus is None else self.corpus

    @property
    def data(self) -> Path:
        """Lists and shards."""
        return self.out / "data"

    @property
    def exp(self) -> Path:
        """The experiment."""
        return self.out / f"exp_{self.data_type}"

    def stages(self) -> list[Stage]:
        """All, by number."""
        titles = ("corpus", "lists", "CMVN", "dictionary", "shards", "training", "decoding", "export")
        runs = (self.get_corpus, self.make_lists, self.make_cmvn, self.make_dictionary, self.make_shards,
                self.train, self.evaluate, self.export)  # fmt: skip
        return [Stage(number - 1, *one) for number, one in enumerate(zip(titles, runs, strict=True))]

    def get_corpus(self) -> str:
        """Stage -1."""
        if self.corpus is None and make_mini(self.root, MiniSettings(1, self.hours, self.minutes), self.jobs):
            return f"{self.root}: spoken"
        check_corpus(self.root)
        return f"{self.root}: there"

    def make_lists(self) -> str:
        """Stage 0."""
        prepared = prepare(self.root, self.data, self.subset)
        lists = f"{self.data}/{{train,{','.join(HELD_OUT)}}}/data.list, wav.scp, segments, text:"
        return f"{lists}\n{prepared}\n{self.data}/left_out.jsonl lists what was left out"

    def make_cmvn(self) -> str:
        """Stage 1."""
        from ..common.cmvn import CmvnSettings, compute_cmvn

        config = Config.load(self.config, self.override)
        sample, out = self.data / "cmvn.list", self.data / "global_cmvn"
        count = _thin_out(self.data / "train" / "data.list", sample, CMVN_UTTERANCES)
        settings = CmvnSettings(config.model.num_mel_bins, config.data.sample_rate)
        sums = compute_cmvn(sample, out, settings, self.jobs or multiprocessing.cpu_count())
        return f"{out}: {sums.frame_num} frames of {sums.utterances} utterances (of {count})"

    def make_dictionary(self) -> str:
        """Stage 2."""
        from ..common.dictionary import write_characters, write_pieces

        folder = self.data / "dict"
        with (self.data / "train" / "text").open(encoding="utf-8") as file:
            texts = (line.rstrip("\n").partition(" ")[2] for line in file)
            if self.bpe:
                size = write_pieces(folder, texts, self.bpe)
            else:  # a blank between words is a token of its own, ▁
                size = write_characters(folder, (text.replace(" ", "▁") for text in texts))
        return f"{folder}/lang_char.txt: {size} tokens"

    def make_shards(self) -> str:
        """Stage 3."""
        jobs = self.jobs or multiprocessing.cpu_count()
        packed = pack_all(self.data, self.groups, self.shard_size, "wav", jobs)
        return "\n".join(f"{self.data / name / 'shards.list'}: {one}" for name, one in packed.items())

    def train(self) -> str:
        """Stage 4."""
        with self._lists() as lists:
            arguments = [str(self.data), str(self.exp), "--config", str(self.config), "--data-type", self.data_type]
            arguments += ["--train-data", lists["train"], "--cv-data", lists["dev"]]
            arguments += [word for one in self.override for word in ("--set", one)]
            launch(self.topology, "recipes.common.train", arguments, self.exp)
        return f"{self.exp}: trained on {lists['train']}"

    @contextlib.contextmanager
    def _lists(self) -> Iterator[dict[str, str]]:
        """What the trainer reads, on disk or behind a server that runs as long as the block."""
        name = "data.list" if self.data_type == "raw" else "shards.list"
        on_disk = {part: str(self.data / part / name) for part in ("train", "dev")}
        chosen = self.train_groups != self.groups and self.data_type == "shard"
        if self.source == "disk":
            yield on_disk | ({"train": selected(str(self.data.resolve()), self.train_groups)} if chosen else {})
            return
        kind: Kind = self.source
        with serve(kind, self.data, ["train", "dev"]) as (base, lists):
            urls = {part: str(path) for part, path in lists.items()}
            yield urls | ({"train": selected(base, self.train_groups)} if chosen else {})

    def evaluate(self) -> str:
        """Stage 5: averages, decodes, scores."""
        from ..common.score import write_report

        launch(Topology(1), "recipes.common.average", [str(self.exp), "--best", str(self.average)], self.exp)
        lines = []
        for part in HELD_OUT:
            for mode in self.modes:
                options = ["--split", part, "--mode", mode, "--beam-size", str(self.beam_size)]
                arguments = [str(self.data), str(self.exp), *options, "--data-type", self.data_type]
                launch(self.topology, "recipes.common.decode", arguments, self.exp)
                report = self._report(part, mode)
                rate = write_report(report, self.data / part / "text", report.with_suffix(".hyp"))
                lines.append(f"{report}: {rate}")
        return "\n".join(lines)

    def error_rates(self) -> dict[tuple[str, str], str]:
        """As far as they are known, by set and mode: ``4.61 %``."""
        found = {}
        for part in HELD_OUT:
            for mode in self.modes:
                if (report := self._report(part, mode)).is_file() and (rate := _RATE.search(report.read_text())):
                    found[part, mode] = rate[1]
        return found

    def _report(self, part: str, mode: str) -> Path:
        return self.exp / f"{part}.{mode}.wer"

    def export(self) -> str:
        """Stage 6."""
        launch(Topology(1), "recipes.common.export", [str(self.exp)], self.exp)
        return f"{self.exp / 'export'}"


def _thin_out(source: Path, target: Path, most: int) -> int:
    """Every n-th line, so that ``most`` remain at most; returns how many there were."""
    with source.open(encoding="utf-8") as file:
        count = sum(1 for _ in file)
    with source.open(encoding="utf-8") as file:
        write_lines(target, (line.rstrip("\n") for line in islice(file, 0, None, max(1, -(-count // most)))))
    return count
