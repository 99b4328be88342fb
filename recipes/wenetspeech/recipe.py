"""What each stage of the recipe does. Each can be run again: it goes on where it was interrupted, and returns what to
say of what it wrote. Training, averaging, decoding and export are commands of ``recipes.common``.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal

from uio_pipes.prep.packing.grouping import Group
from uio_pipes.prep.writing.files import read_lines, write_lines

from ..common.config import Config
from ..common.data_types import DataType, list_of
from ..common.launch import Topology, launch
from ..common.stages import Need, Stage
from .layout import TEST_SUBSETS, check_corpus, metadata_path
from .mini import make_mini
from .pack import pack_all, selected
from .plan import Settings as MiniSettings
from .prepare import prepare
from .serve import Kind, serve

Source = Literal["disk", "s3", "http"]
_RATE = re.compile(r"Overall -> ([\d.]+ %)")
HELD_OUT = tuple(TEST_SUBSETS.values())
MODES = ("ctc_greedy_search", "attention_rescoring")  # WeNet's recipe decodes by these
CTC_MODES = ("ctc_greedy_search", "ctc_prefix_beam_search")
ALL_MODES = (*CTC_MODES, "attention", "attention_rescoring")
CMVN_UTTERANCES = 200_000  # of the training set, evenly spread: as good as all 15 million, and minutes instead of days


@dataclass(frozen=True)
class Recipe:
    """One run of the recipe. ``corpus`` is None for the mini corpus; ``asked_modes`` is empty for the usual ones.

    Raises: ValueError, if something cannot be as it is.
    """

    out: Path
    corpus: Path | None
    config: Path
    data_type: DataType
    subset: str
    source: Source
    groups: tuple[Group, ...]
    train_groups: tuple[Group, ...]
    shard_size: int
    hours: float
    minutes: float
    jobs: int
    topology: Topology
    num_workers: int
    asked_modes: tuple[str, ...]
    average: int
    beam_size: int
    bpe: int
    override: tuple[str, ...]

    def __post_init__(self) -> None:
        attends = self.settings.model.decoder_layers > 0
        for mode in self.asked_modes:
            if mode not in ALL_MODES:
                raise ValueError(f"--mode must be one of {', '.join(ALL_MODES)}, not {mode!r}")
            if not attends and mode not in CTC_MODES:
                raise ValueError(
                    f"--mode {mode} needs a decoder; {self.config} has none: take {' or '.join(CTC_MODES)}"
                )
        if (there := self._subset_there()) not in (None, self.subset):
            raise ValueError(
                f"{self.data} holds subset {there}, not {self.subset}: take another --out, or --subset {there}"
            )

    @cached_property
    def settings(self) -> Config:
        """The configuration. Raises: ConfigError."""
        return Config.load(self.config, self._overrides)

    @property
    def _overrides(self) -> list[str]:
        workers = [] if self.num_workers < 0 else [f"data.num_workers={self.num_workers}"]
        return [*workers, *self.override]

    @property
    def modes(self) -> tuple[str, ...]:
        """Those asked for, or the usual ones that the model can do."""
        return self.asked_modes or (MODES if self.settings.model.decoder_layers else CTC_MODES)

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
        return [Stage(number - 1, *one) for number, one in enumerate(zip(titles, runs, self._needs(), strict=True))]

    def _needs(self) -> list[tuple[Need, ...]]:
        """What each stage wants of earlier ones, from stage -1 on."""
        data, train, parts = self.data, self.data / "train", ("train", *HELD_OUT)
        spoken: tuple[Need, ...] = ((-1, metadata_path(self.root)),) if self.corpus is None else ()
        lists: dict[str, Need] = {
            part: (0 if self.data_type == "raw" else 3, Path(list_of(data, part, self.data_type))) for part in parts
        }
        cmvn: tuple[Need, ...] = ((1, data / "global_cmvn"),) if self.settings.model.cmvn else ()
        return [
            (),
            spoken,
            ((0, train / "data.list"),),
            ((0, train / "text"),),
            tuple((0, data / part / "data.list") for part in parts),
            (*cmvn, (2, data / "dict" / "lang_char.txt"), lists["train"], lists["dev"]),
            ((4, self.exp / "epochs"), *(lists[part] for part in HELD_OUT)),
            ((5, self.exp / "average.pt"),),
        ]

    def get_corpus(self) -> str:
        """Stage -1."""
        if self.corpus is None and make_mini(self.root, MiniSettings(1, self.hours, self.minutes), self.jobs):
            return f"{self.root}: spoken"
        check_corpus(self.root)
        return f"{self.root}: there"

    def make_lists(self) -> str:
        """Stage 0."""
        check_corpus(self.root)
        write_lines(self._subset_path, [self.subset])
        prepared = prepare(self.root, self.data, self.subset)
        lists = f"{self.data}/{{train,{','.join(HELD_OUT)}}}/data.list, wav.scp, segments, text:"
        return f"{lists}\n{prepared}\n{self.data}/left_out.jsonl lists what was left out"

    @property
    def _subset_path(self) -> Path:
        return self.data / "subset"

    def _subset_there(self) -> str | None:
        """The subset whose lists are there, or were begun."""
        return "".join(read_lines(self._subset_path)) if self._subset_path.is_file() else None

    def make_cmvn(self) -> str:
        """Stage 1."""
        from uio_pipes.prep.cmvn import CmvnSettings, compute_cmvn

        config = self.settings
        sample, out = self.data / "cmvn.list", self.data / "global_cmvn"
        count = _thin_out(self.data / "train" / "data.list", sample, CMVN_UTTERANCES)
        settings = CmvnSettings(config.model.num_mel_bins, config.data.sample_rate)
        sums = compute_cmvn(sample, out, settings, self.jobs or multiprocessing.cpu_count())
        return f"{out}: {sums.frame_num} frames of {sums.utterances} utterances (of {count})"

    def make_dictionary(self) -> str:
        """Stage 2."""
        from uio_pipes.prep.dictionary import write_characters, write_pieces

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
        touch = self.data_type == "indexed"
        packed = pack_all(self.data, self.groups, self.shard_size, "wav", jobs, touch)
        lists = "indexed.list" if touch else "shards.list"
        return "\n".join(f"{self.data / name / lists}: {one}" for name, one in packed.items())

    def train(self) -> str:
        """Stage 4."""
        with self._lists() as lists:
            arguments = [str(self.data), str(self.exp), "--config", str(self.config), "--data-type", self.data_type]
            arguments += ["--train-data", lists["train"], "--cv-data", lists["dev"]]
            arguments += [word for one in self._overrides for word in ("--set", one)]
            launch(self.topology, "recipes.common.train", arguments, self.exp)
        return f"{self.exp}: trained on {lists['train']}"

    @contextlib.contextmanager
    def _lists(self) -> Iterator[dict[str, str]]:
        """What the trainer reads, on disk or behind a server that runs as long as the block."""
        on_disk = {part: list_of(self.data, part, self.data_type) for part in ("train", "dev")}
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
        few = self.corpus is None and self.num_workers < 0  # starting them takes longer than the mini corpus
        workers = ["--num-workers", "0" if few else str(self.settings.data.num_workers)]
        lines = []
        for part in HELD_OUT:
            for mode in self.modes:
                options = ["--split", part, "--mode", mode, "--beam-size", str(self.beam_size)]
                arguments = [str(self.data), str(self.exp), *options, "--data-type", self.data_type, *workers]
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
        return self.exp / f"{part}.{mode}.cer"

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
