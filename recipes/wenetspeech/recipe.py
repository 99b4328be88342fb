"""The stages of the WenetSpeech recipe, and the options that only it has (see ``options``).

Each stage can be run again: it continues where it was interrupted, and returns lines that say what it wrote.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from argparse import Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from uio_pipes.io.files import write_lines
from uio_pipes.tools.data.placement import parse_group

from ..common import driver
from ..common.driver import CTC_MODES, MODES
from ..common.launch import Topology, launch
from ..common.lists import read_lines
from ..common.stages import Need, Stage
from .layout import TEST_SUBSETS, check_corpus, metadata_path
from .mini import make_mini
from .pack import GROUPS, pack_all, selected
from .plan import Settings as MiniSettings
from .prepare import prepare
from .serve import serve

Source = Literal["disk", "s3", "http"]
HELD_OUT = tuple(TEST_SUBSETS.values())
USUAL_MODES = ("ctc_greedy_search", "attention_rescoring")  # WeNet's recipe decodes in these
MINI_GROUPS = ("10:150", "150:250", "250:1200")  # for utterances of about 2.5 s
CMVN_UTTERANCES = 200_000  # evenly spread over the training set: as good as all 15 million, in minutes instead of days


class Recipe(driver.Recipe):
    """One run of the WenetSpeech recipe."""

    tests = HELD_OUT

    def __init__(self, options: Namespace) -> None:
        size = "mini" if options.corpus == "mini" else "full"
        out = Path("exp") / f"wenetspeech-{size}-{options.subset.lower()}"
        super().__init__(options, Path(__file__).parent, out, f"exp_{options.data_type}")
        self.subset: str = options.subset
        self.source: Source = options.source
        self.groups = tuple(map(parse_group, options.group or (MINI_GROUPS if self.mini else GROUPS)))
        self.train_groups = tuple(map(parse_group, options.train_group)) if options.train_group else self.groups
        self.shard_size: int = options.shard_size or (20 if self.mini else 2000)
        self.minutes: float = options.minutes
        self.jobs: int = options.jobs or multiprocessing.cpu_count()
        self.asked_modes: tuple[str, ...] = tuple(options.mode or ())
        self._check_groups()
        self._check_modes()
        if (there := self._subset_there()) not in (None, self.subset):
            raise ValueError(
                f"{self.data} holds subset {there}, not {self.subset}: take another --out, or --subset {there}"
            )

    def _check_groups(self) -> None:
        unknown = [group.folder for group in self.train_groups if group not in self.groups]
        if unknown:
            raise ValueError(f"--train-group {', '.join(unknown)} is none of the groups that are packed (--group)")
        some = self.train_groups != self.groups
        if some and self.data_type != "shard":
            what = f"with --data-type {self.data_type}, set data.max_frames instead"
            raise ValueError(f"--train-group chooses folders of shards; {what}")
        if some and self.source == "http":
            raise ValueError(
                "--train-group needs a glob, which HTTP does not have: leave it out, or train --from disk or s3"
            )
        if self.source != "disk" and self.data_type != "shard":
            raise ValueError(
                f"--from {self.source} serves shards, but --data-type {self.data_type} reads files on this disk: "
                "take --data-type shard"
            )

    def _check_modes(self) -> None:
        for mode in self.asked_modes:
            if mode not in MODES:
                raise ValueError(f"--mode must be one of {', '.join(MODES)}, not {mode!r}")
            if not self.settings.model.decoder_layers and mode not in CTC_MODES:
                raise ValueError(
                    f"--mode {mode} needs a decoder; {self.config} has none: take {' or '.join(CTC_MODES)}"
                )

    @property
    def modes(self) -> tuple[str, ...]:
        return self.asked_modes or (USUAL_MODES if self.settings.model.decoder_layers else CTC_MODES)

    def need_list(self, part: str) -> Need:
        return 0 if self.data_type == "raw" else 3, Path(self.list_path(part))

    def stages(self) -> list[Stage]:
        data, train = self.data, self.data / "train"
        spoken = ((-1, metadata_path(self.corpus)),) if self.mini else ()
        raw_lists = tuple((0, data / part / "data.list") for part in ("train", *HELD_OUT))
        decoded = (4, self.exp / "epochs"), *map(self.need_list, HELD_OUT)
        return [
            Stage(-1, "corpus", self.get_corpus),
            Stage(0, "lists", self.make_lists, spoken),
            Stage(1, "CMVN", self.make_cmvn, ((0, train / "data.list"),)),
            Stage(2, "dictionary", self.make_dictionary, ((0, train / "text"),)),
            Stage(3, "shards", self.make_shards, raw_lists),
            Stage(4, "training", self.train, self.needs_of_training()),
            Stage(5, "decoding", self.evaluate, decoded),
            Stage(6, "export", self.export, ((5, self.exp / "average.pt"),)),
        ]

    def get_corpus(self) -> str:
        if self.mini and make_mini(self.corpus, MiniSettings(1, self.hours, self.minutes), self.jobs):
            return f"{self.corpus}: spoken"
        check_corpus(self.corpus)
        return f"{self.corpus}: there"

    def make_lists(self) -> str:
        check_corpus(self.corpus)
        write_lines(self._subset_path, [self.subset])
        prepared = prepare(self.corpus, self.data, self.subset)
        lists = f"{self.data}/{{train,{','.join(HELD_OUT)}}}/data.list, wav.scp, segments, text:"
        return f"{lists}\n{prepared}\n{self.data}/left_out.jsonl lists what was left out"

    @property
    def _subset_path(self) -> Path:
        return self.data / "subset"

    def _subset_there(self) -> str | None:
        """Return the subset whose lists are complete, or were begun; None if there are none."""
        return "".join(read_lines(self._subset_path)) if self._subset_path.is_file() else None

    def make_cmvn(self) -> str:
        from uio_pipes.tools.data.cmvn import compute_cmvn

        config = self.settings
        sample, out = self.data / "cmvn.list", self.data / "global_cmvn"
        count = _thin_out(self.data / "train" / "data.list", sample, CMVN_UTTERANCES)
        bins, rate = config.model.num_mel_bins, config.data.sample_rate
        conf = {"resample_conf": {"resample_rate": rate}, "fbank_conf": {"num_mel_bins": bins}}
        sums = compute_cmvn(sample, out, conf, self.jobs)
        return f"{out}: {sums.frame_num} frames of {sums.utterances} utterances (of {count})"

    def make_dictionary(self) -> str:
        from uio_pipes.tools.data.dictionary import write_pieces

        from ..common.prepare import write_characters

        folder = self.data / "dict"
        with (self.data / "train" / "text").open(encoding="utf-8") as file:
            texts = (line.rstrip("\n").partition(" ")[2] for line in file)
            if self.bpe:
                size = write_pieces(folder, texts, self.bpe)
            else:  # a blank between words is a token of its own, ▁
                size = write_characters(folder, (text.replace(" ", "▁") for text in texts))
        return f"{folder}/lang_char.txt: {size} tokens"

    def make_shards(self) -> str:
        touch = self.data_type == "indexed"
        packed = pack_all(self.data, self.groups, self.shard_size, "wav", self.jobs, touch)
        lists = "indexed.list" if touch else "shards.list"
        return "\n".join(f"{self.data / name / lists}: {one}" for name, one in packed.items())

    def train(self) -> str:
        with self._lists() as lists:
            self.launch_training("--train-data", lists["train"], "--cv-data", lists["dev"])
        return f"{self.exp}: trained on {lists['train']}"

    @contextlib.contextmanager
    def _lists(self) -> Iterator[dict[str, str]]:
        """Yield the lists that the trainer reads: on the disk, or from a server that runs as long as the block."""
        on_disk = {part: self.list_path(part) for part in ("train", "dev")}
        chosen = self.train_groups != self.groups and self.data_type == "shard"
        if self.source == "disk":
            yield on_disk | ({"train": selected(str(self.data.resolve()), self.train_groups)} if chosen else {})
            return
        with serve(self.source, self.data, ["train", "dev"]) as (base, lists):
            urls = {part: str(path) for part, path in lists.items()}
            yield urls | ({"train": selected(base, self.train_groups)} if chosen else {})

    def evaluate(self) -> str:
        launch(Topology(1), "recipes.common.average", [str(self.exp), "--best", str(self.average)], self.exp)
        return "\n".join(f"{report}: {rate}" for part in HELD_OUT for report, rate in self.decode_and_score(part))

    def export(self) -> str:
        launch(Topology(1), "recipes.common.export", [str(self.exp)], self.exp)
        return f"{self.exp / 'export'}"


def _thin_out(source: Path, target: Path, most: int) -> int:
    """Copy every n-th line, so that at most ``most`` remain; return how many there were."""
    with source.open(encoding="utf-8") as file:
        count = sum(1 for _ in file)
    with source.open(encoding="utf-8") as file:
        write_lines(target, (line.rstrip("\n") for line in islice(file, 0, None, max(1, -(-count // most)))))
    return count
