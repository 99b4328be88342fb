"""``uio inspect``, ``uio verify`` and ``uio index``: what data contain, what is wrong with them, and their indexes;
``uio corpora``: the published ones that are read by name."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import plural, printable
from uio_pipes.tools.cli.common import keep_inputs, parsed, print_json, print_report, say, show_problems, verdict
from uio_pipes.tools.cli.options import AllowPipes, Fields, GroupingOption, Json, Page, Processes, Tolerance

if TYPE_CHECKING:
    from uio_pipes.tools.reports.inspect import Contents
    from uio_pipes.tools.reports.page import PageTable


BINS = 12  # most bars of the histogram


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Lists, shards, manifests, texts, YAML mixes, folders, URLs; NAME:FOLDER of a corpus, "
            "FILE.py:NAME:DATA of a format of yours."
        ),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Look at no more than this number of utterances of each.")
    ] = None,
    jobs: Processes = 1,
    report: Page = None,
    fields: Fields = None,
    timeline: Annotated[
        str | None,
        typer.Option(help="Says who speaks when: a table, a pattern as '{stem}.json', or field:NAME."),
    ] = None,
    uem: Annotated[str | None, typer.Option(help="With --timeline: table of what is annotated.")] = None,
    allow_pipes: AllowPipes = False,
    as_json: Json = False,
) -> None:
    """See what is in data: hours, durations, characters, failures; with timelines, speech, overlap and silence."""
    keep_inputs(paths, [report])
    from uio_pipes.formats.tables.files import MissingTable
    from uio_pipes.tools.data.common import progress_bar
    from uio_pipes.tools.data.finding.find import found_parts
    from uio_pipes.tools.reports import inspect as look

    sources = [one for path in paths for one in found_parts(path, allow_pipes, fields)]  # all before any is read
    for line in (f"{one.path}: {line}" for one in sources for line in one.notes if not as_json):
        say(line)
    timed: dict[str, Any] = {"field": timeline[6:]} if timeline and timeline[:6] == "field:" else {"source": timeline}
    total = look.Contents()
    parts: list[dict[str, Any]] = []
    for source in sources:
        absent = False
        try:
            pipeline = source.pipeline.timeline(**timed, uem=uem) if timeline or uem else source.pipeline
            with progress_bar() as bar:
                task = bar.add_task("inspecting", total=sum(source.pipeline._count(1) or ()) or None)
                seen = look.inspect(pipeline, limit=limit, jobs=jobs, progress=partial(bar.advance, task))
        except ListError as error:
            if sum(one.path == source.path for one in sources) == 1:
                raise
            absent = isinstance(error, MissingTable)  # a part of a corpus that its archive has not got: nothing failed
            lost = Counter([] if absent else ["unreadable_file"])
            seen = look.Contents(failures=lost, reports=[] if absent else [f"{source.kind}: {error}"])
        counts = {"utterances": seen.utterances, "hours": seen.hours, "failures": seen.failures.total()}
        kind = source.kind + (", which is not in it" if absent else ", which another part holds" if source.held else "")
        parts.append({"path": source.path, "kind": kind, **counts})
        if source.held:  # its utterances are those of the other part, but not what happened when they were read
            seen = look.Contents(failures=seen.failures, left_out=seen.left_out, reports=seen.reports)
        total.add(seen)
    print_report(tables(parts, total), {"parts": parts, **total.summary()}, as_json, report, "What is in the data")
    verdict(not total.failures)


def tables(parts: list[dict[str, Any]], seen: Contents) -> list[PageTable]:
    """Return the tables that the terminal and the page show."""
    each = [(p["path"], p["kind"], f"{p['utterances']:,}", f"{p['hours']:.3f}", p["failures"]) for p in parts]
    found: list[PageTable] = [("Data", ("path", "kind", "utterances", "hours", "failures"), each)]
    known, whole = sum(seen.durations.values()), "" if seen.whole else " (looked at; there are more)"

    def of(counts: Counter[Any], most: int, between: str = ": ") -> list[str]:
        return [f"{name}{between}{n:,}" for name, n in counts.most_common(most)]

    rows = [
        ("utterances", f"{seen.utterances:,}{whole}"),
        ("hours", f"{seen.hours:.3f}"),
        ("mean duration", f"{seen.seconds / known:.2f} s" if known else ""),
        *((name, f"{end[0]:.2f} s ({end[1]})" if end else "")
          for name, end in (("shortest", seen.shortest), ("longest", seen.longest))),
        ("length unknown until decoded", f"{seen.unknown:,}" * bool(seen.unknown)),
        ("codecs", ", ".join(of(seen.codecs, 12))),
        ("sample rates (Hz)", ", ".join(of(seen.rates, 12))),
        ("channels", ", ".join(of(seen.channels, 12))),
        ("fields", ", ".join(of(seen.fields, 12))),
        ("sample rate unknown until decoded", f"{seen.unknown_rates:,}" * bool(seen.unknown_rates)),
        ("mixed sample rates",
         "they cannot share a batch: put .resample(16_000) before the features" * (len(seen.rates) > 1)),
        ("speakers", f"{len(seen.speakers):,}" * bool(seen.speakers)),
        ("hours of speech", ", ".join(f"{who or 'speech'}: {n / 3600:.3f}" for who, n in seen.speech.most_common(14))),
        ("characters", f"{len(seen.characters):,} different, {seen.characters.total():,} in "
                       f"{plural(seen.texts, 'text')}" * bool(seen.texts)),
        ("most frequent", " ".join(of(seen.characters, 20, ":"))),
        ("left out", ", ".join(of(seen.left_out, len(seen.left_out)))),
        ("empty texts", f"{seen.empty_texts:,}" * bool(seen.empty_texts)),
        ("odd characters", " ".join(f"U+{ord(c):04X}:{n}" for c, n in list(seen.odd.items())[:20])),
    ]  # fmt: skip
    rows = [(name, value) for name, value in rows if value]
    found.append(("Contents", ("", "value"), rows))
    if known:
        found.append(("Durations", ("seconds", "utterances", ""), _histogram(seen)))
    if seen.failures:
        found.append(("Failures", ("reason", "count"), [(r, f"{n:,}") for r, n in seen.failures.most_common()]))
        found.append(("The first of them", ("",), [(r,) for r in seen.reports[:10]]))
    samples = [(s["key"], s["seconds"], s["txt"]) for s in seen.samples]
    return [*found, ("Samples", ("key", "seconds", "text"), samples)] if samples else found


def _histogram(seen: Contents) -> list[tuple[str, str, str]]:
    from uio_pipes.tools.reports.inspect import BIN
    from uio_pipes.tools.reports.page import Bar

    last = max(seen.durations)
    width = max(1, -(-(last + 1) // BINS))
    sums = [sum(seen.durations[i] for i in range(at, at + width)) for at in range(0, last + 1, width)]
    longest = max(sums)
    return [
        (f"{i * width * BIN:g} to {(i + 1) * width * BIN:g}", f"{n:,}", Bar(n / longest)) for i, n in enumerate(sums)
    ]


def verify(
    paths: Annotated[
        list[str], typer.Argument(help="Lists, globs, shards, manifests, Parquet files, texts, folders, URLs.")
    ],
    decode: Annotated[bool, typer.Option("--decode", help="Decode all audio, read all features.")] = False,
    crc: Annotated[
        bool, typer.Option("--crc", help="Demand an index of all data, and compare with its CRC32s.")
    ] = False,
    rate: Annotated[int | None, typer.Option(min=1, help="Sample rate in Hz that all audio must have.")] = None,
    quarantine: Annotated[str | None, typer.Option(help="File to which each finding is appended, once.")] = None,
    grouping: GroupingOption = "wenet",
    text: Annotated[str, typer.Option(help="Suffix of the text, or json:NAME for a field of a JSON member.")] = "txt",
    fields: Fields = None,
    indexes: Annotated[str | None, typer.Option(help="Folder of `uio index --into`.")] = None,
    allow_pipes: AllowPipes = False,
    tolerance: Tolerance = None,
    jobs: Processes = 0,
    json: Json = False,
) -> None:
    """Find what is damaged in data, before a training does.

    Structure, manifests, indexes, headers, texts and keys are checked. The exit code is 1 if anything is bad.
    """
    from uio_pipes.formats.lists.quarantine import Quarantine, entry_of
    from uio_pipes.tools.data.checks import WantedChecks
    from uio_pipes.tools.data.common import progress_bar
    from uio_pipes.tools.data.verify import verify as run

    check_text(text)
    keep_inputs(paths, [quarantine])
    wanted = WantedChecks(decode, crc, rate, grouping, text, indexes, fields, tolerance)
    reports = run(paths, wanted, jobs=jobs, allow_pipes=allow_pipes)
    report = next(reports)  # if a list cannot be used, nothing is written
    file = None if quarantine is None else Quarantine(quarantine)  # if it cannot be written, it is an error now
    with progress_bar() as bar:
        task = bar.add_task("verifying", total=None)
        for report in reports:
            bar.update(task, completed=report.checked, total=report.items)
    entries = [entry_of(found, "verify") for found in report.findings]
    if file is not None:
        for entry in entries:
            file.add(entry)
        file.close()
    if json:
        counts = {"items": report.items, "utterances": report.utterances}
        print_json({**counts, "reasons": report.reasons, "findings": entries, "notes": report.notes})
    else:
        found = ", ".join(f"{count} {reason}" for reason, count in report.reasons.items()) or "nothing is wrong"
        read = f"{plural(report.utterances, 'utterance')} of {plural(report.items, 'item')}"
        for line in (f"{read}: {found}", *report.notes):
            typer.echo(printable(line))
        show_problems(report.findings)
    verdict(not report.findings)


def index(
    paths: Annotated[list[str], typer.Argument(help="Lists, globs, shards, TouchDataset folders; local or URLs.")],
    into: Annotated[str | None, typer.Option(help="Folder for the indexes, instead of beside the data.")] = None,
    grouping: GroupingOption = "wenet",
    text: Annotated[
        str, typer.Option(help="Suffix of the text, json:NAME for a field of a JSON member, or '' if there is none.")
    ] = "txt",
    manifest: Annotated[
        bool, typer.Option("--manifest", help="Write the manifest of each list, even if it has one.")
    ] = False,
    members: Annotated[
        bool, typer.Option("--members", help="Index archives that a table describes, tar.gz too, member by member.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Index again what has an index that fits.")] = False,
    jobs: Processes = 0,
    json: Json = False,
) -> None:
    """Give shards random access and known lengths, without repacking.

    Each shard gets a small file beside it, and each list without a manifest gets one. TouchDatasets get checksums of
    their records, in a small file beside each .bin. With --members, archives that uio.from_table reads can be read in
    any order afterwards: tar.gz (by indexed_gzip), tar.zst, remote tars.
    """
    from uio_pipes.tools.data.index import index_archives, index_lists

    if members:
        if into or manifest:
            raise typer.BadParameter("stands alone: the index is beside the archive", param_hint="--members")
        report: Any = index_archives(paths, jobs=jobs, force=force)
    else:
        check_text(text)
        keep_inputs(paths, [into])
        which: Literal["all", "missing"] = "all" if manifest else "missing"
        report = index_lists(paths, into=into, jobs=jobs, grouping=grouping, text=text, force=force, manifests=which)
    if json:
        print_json(report.as_dict())
    else:
        typer.echo(str(report))
        show_problems(report.problems)
    verdict(not report.problems)


def check_text(text: str) -> None:
    """Raises: typer.BadParameter if the name of texts in tars is wrong."""
    from uio_pipes.stages.reading.load_from_tar import LoadFromTar

    if text:
        parsed("--text", lambda text: LoadFromTar(text=text), text)


def corpora(
    name: Annotated[str | None, typer.Argument(help="The corpus to show; FILE.py:NAME is a card of yours.")] = None,
    as_json: Json = False,
) -> None:
    """See which published corpora are read by name, or how one is.

    Of one: what to download, its layout, parts and fields. The licence of each is between you and who publishes it.
    `uio inspect NAME:FOLDER` shows what is there of one.
    """
    from uio_pipes.sources.corpora.source import CORPORA, card_of
    from uio_pipes.tools.data.corpora import described, listed

    if name is None:
        rows, names = listed(CORPORA), ("name", "title", "hours", "forms", "download")
        print_report([("Corpora", names, rows)], [dict(zip(names, row, strict=True)) for row in rows], as_json)
        return
    card = card_of(name)
    if as_json:
        report: dict[str, Any] = {key: getattr(card, key) for key in ("name", "title", "hours", "download", "notes")}
        lists: dict[str, Any] = {key: list(getattr(card, key)) for key in ("parts", "train", "options", "columns")}
        layouts = [{"form": layout.form, "paths": layout.places} for layout in card.layouts]
        print_json({**report, **lists, "layouts": layouts})
        return
    for line in described(card).splitlines():
        say(line)
