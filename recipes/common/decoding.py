"""One rank's part of a decoding: continue where the last run ended, note each batch, join the results of all ranks."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Literal

import torch
from torch import nn

import uio_pipes as uio
from uio_pipes.base.errors import NothingRead
from uio_pipes.run.ordered import moved, noting_failures
from uio_pipes.run.partial import Changed, DecodedBatch, Partial, ResultWriter, State
from uio_pipes.tools.data.common import progress_bar

from .experiment import Tokens
from .model import AsrModel
from .peers import Peers
from .results import Results, Summary
from .search import Search

__all__ = ["DecodeError", "Decoding", "OnChange"]

OnChange = Literal["error", "restart"]
REMEDY = "Decode as before, or drop the partial results by --on-change restart"


class DecodeError(Exception):
    """The decoding is not possible; the message says what to do."""


@dataclass(frozen=True)
class Decoding:
    """One rank's part of a decoding."""

    ranks: Peers
    model: AsrModel
    tokenizer: Tokens
    search: Search
    loader: uio.Loader
    keys: list[str]
    results: Results
    partial: Partial

    def run(self, on_change: OnChange) -> None:
        """Decode what the last run has not finished."""
        about, state = self.ranks.from_first(lambda: self._begin(on_change))
        if state is None:
            if self.ranks.first:
                self._tell("decoded before, by this model in this way", self.results.summary(about))
            return
        self.loader.load_state_dict(state)
        with self.partial.writer(self.ranks.rank) as writer:
            try:
                self._decode(writer)
            except uio.StateError as error:
                raise DecodeError(f"{error}. {REMEDY}") from error
        self.ranks.wait()
        self.ranks.from_first(lambda: self._finish(about))

    def _finish(self, about: dict[str, Any]) -> None:
        """Join the results of all ranks. One rank does it for all."""
        summary = self.results.write(about, self.keys, self.partial.records())
        self.partial.discard()
        self._tell(f"decoded by {self.search.mode}", summary)

    def _about(self) -> dict[str, Any]:
        """Return what must be equal for partial results to be used again."""
        search = asdict(self.search)
        if self.search.mode != "attention_rescoring":
            del search["ctc_weight"]
        about = {
            "model": _digest(self.model),
            "dictionary": repr(self.tokenizer),
            **search,
            **self.loader.fingerprints(),
        }
        plain: dict[str, Any] = json.loads(json.dumps(about))
        return plain

    def _begin(self, on_change: OnChange) -> tuple[dict[str, Any], State | None]:
        """Return what is decoded and where to continue; None if all is done. One rank finds out for all."""
        about = self._about()
        before = self.results.summary(about)
        if before is not None and not (before.failed and on_change == "restart"):
            self.partial.discard()  # the last run was killed just before it did this
            return about, None
        try:
            return about, self._resume(about, thorough=on_change == "restart")
        except (Changed, uio.StateError) as error:
            if on_change == "error":
                raise DecodeError(f"{error}. {REMEDY}") from error
        self.partial.discard()
        return about, self._resume(about)

    def _resume(self, about: dict[str, Any], thorough: bool = False) -> State:
        whole = uio.Loader(self.loader.pipeline, lanes=self.loader.lanes, rank=0, world_size=1, uneven="join")
        self.partial.begin(about, whole.state_dict())
        state = self.partial.state()
        whole.load_state_dict(state)
        if thorough and not whole.finished:
            next(iter(whole), None)  # every lane goes to where it was: shards that changed are noticed now
        return state

    def _decode(self, writer: ResultWriter) -> None:
        """Decode the batches of this rank that are not done yet."""
        before, seen = self.loader.state_dict(), time.monotonic()
        with noting_failures(self.loader) as reports, self._bar() as advance:
            for batch in () if self.loader.finished else _whatever_comes(self.loader):
                utterances = self._texts(batch)
                after, now = self.loader.state_dict(), time.monotonic()
                frames = int(batch["feats_lengths"].sum())
                writer.add(DecodedBatch(moved(before, after), utterances, [*reports], frames, now - seen))
                before, seen = after, now
                reports.clear()
                advance(len(utterances))
            writer.add(DecodedBatch(moved(before, self.loader.state_dict()), failures=reports))

    def _texts(self, batch: dict[str, Any]) -> list[tuple[str, list[tuple[float, str]]]]:
        device = self.ranks.device
        found = self.search(self.model, batch["feats"].to(device), batch["feats_lengths"].to(device))
        texts = [[(h.score, self.tokenizer.detokenize(h.labels)) for h in hypotheses] for hypotheses in found]
        return list(zip(batch["keys"], texts, strict=True))

    @contextlib.contextmanager
    def _bar(self) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on the first rank, for all: their shares are of about the same size."""
        if not self.ranks.first:
            yield lambda count: None
            return
        total, done = len(self.keys), sum(len(record.utterances) for record in self.partial.records())
        with progress_bar() as bar:
            task = bar.add_task(self.search.mode, total=total, completed=done)
            yield lambda count: bar.advance(task, min(count * self.ranks.size, total - bar.tasks[task].completed))

    def _tell(self, how: str, summary: Summary | None) -> None:
        assert summary is not None
        if not summary.utterances:
            raise DecodeError(f"nothing could be decoded: see {self.results.failed}, then --on-change restart")
        print(f"{how}: {summary.utterances} utterances, {summary.hours:.2f} h of audio")
        if summary.failed:
            print(
                f"{summary.failed} failed: see {self.results.failed}; after a repair, --on-change restart decodes again"
            )
        print(f"real-time factor of one rank: {summary.real_time_factor:.4f}")
        print(*filter(None, (self.results.hyp, self.results.nbest)), sep="\n", flush=True)


def _whatever_comes(loader: uio.Loader) -> Iterator[dict[str, Any]]:
    """Yield the batches, if any. When all ranks are done, their results show which utterances failed."""
    with contextlib.suppress(NothingRead):
        yield from loader


def _digest(model: nn.Module) -> str:
    """Return a hash of the weights."""
    digest = blake2b(digest_size=8)
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
