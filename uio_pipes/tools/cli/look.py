"""``uio inspect``, ``uio verify`` and ``uio index``: what data contain, what is wrong with them, and their indexes;
``uio corpora``: the published ones that are read by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from uio_pipes.base.errors import ListError
from uio_pipes.base.urls import counted, printable
from uio_pipes.tools.cli.common import (
    check_suffix,
    keep_inputs,
    parsed,
    print_json,
    print_tables,
    say,
    show_problems,
    verdict,
)
from uio_pipes.tools.cli.options import PROCESSES, AllowPipes, Fields, GroupingOption, Json, Processes, field_names

if TYPE_CHECKING:
    from uio_pipes.tools.reports.inspect import Contents
    from uio_pipes.tools.reports.page import PageTable


CHARACTERS = 30  # most characters whose counts the page shows
BINS = 12  # most bars of the histogram


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Lists, shards, indexes, manifests, texts, YAML mixes, folders, URLs; NAME:FOLDER of a corpus."
        ),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Look at no more than this number of utterances of each.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    report: Annotated[str | None, typer.Option(help="Write a page with bars: a .html file.")] = None,
    fields: Fields = None,
    allow_pipes: AllowPipes = False,
    as_json: Json = False,
) -> None:
    """See what is in data: hours, durations, characters, failures."""
    check_suffix(report, ".html")
    keep_inputs(paths, [report])
    from uio_pipes.formats.tables.files import MissingTable
    from uio_pipes.tools.data.common import progress_bar
    from uio_pipes.tools.data.finding.find import found_parts, text_elsewhere
    from uio_pipes.tools.reports import inspect as look

    names = field_names(fields)
    found = [one for path in paths for one in found_parts(path, allow_pipes, names)]  # all before any is read
    for line in (f"{one.known.path}: {line}" for one in found for line in one.told if not as_json):
        say(line)
    sources = [one.known for one in found]
    total = look.Contents()
    parts: list[dict[str, Any]] = []
    for source in sources:
        absent = False
        try:
            with progress_bar() as bar:
                task = bar.add_task("inspecting", total=sum(source.pipeline._count(1) or ()) or None)
                seen = look.inspect(source.pipeline, limit=limit, jobs=jobs, told=partial(bar.advance, task))
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
        silent = seen.utterances and not (seen.texts or as_json)
        if told := text_elsewhere(source.pipeline) if silent else "":
            say(f"{source.path}: {told}")
    if report is not None:
        from uio_pipes.tools.reports.page import Bar, save

        shown, top = tables(parts, total), total.characters.most_common(CHARACTERS)
        if top:  # only on the page, as a browser has the fonts
            rows = [(c, f"U+{ord(c):04X}", f"{n:,}", Bar(n / top[0][1])) for c, n in top]
            shown.append(("Most frequent characters", ("", "", "count", ""), rows))
        save(report, "What is in the data", shown)
    if as_json:
        print_json({"parts": parts, **total.summary()})
    else:
        print_tables(tables(parts, total))
    verdict(not total.failures)


def tables(parts: list[dict[str, Any]], seen: Contents) -> list[PageTable]:
    """Return the tables that the terminal and the page show."""
    each = [(p["path"], p["kind"], f"{p['utterances']:,}", f"{p['hours']:.3f}", p["failures"]) for p in parts]
    found: list[PageTable] = [("Data", ("path", "kind", "utterances", "hours", "failures"), each)]
    rows: list[tuple[str, object]] = [
        ("utterances", f"{seen.utterances:,}" + ("" if seen.whole else " (looked at; there are more)")),
        ("hours", f"{seen.hours:.3f}"),
    ]
    known = sum(seen.durations.values())
    if known and seen.shortest and seen.longest:
        rows.append(("mean duration", f"{seen.seconds / known:.2f} s"))
        rows += [(n, f"{s:.2f} s ({k})") for n, (s, k) in (("shortest", seen.shortest), ("longest", seen.longest))]
    if seen.unknown:
        rows.append(("length unknown until decoded", f"{seen.unknown:,}"))
    named: list[tuple[str, Counter[Any]]] = [("codecs", seen.codecs), ("sample rates (Hz)", seen.rates)]
    named += [("channels", seen.channels), ("fields", seen.fields)]
    rows += [(name, ", ".join(f"{k}: {n:,}" for k, n in of.most_common(12))) for name, of in named if of]
    if seen.unknown_rates:
        rows.append(("sample rate unknown until decoded", f"{seen.unknown_rates:,}"))
    if len(seen.rates) > 1:
        rows.append(("mixed sample rates", "they cannot share a batch: put .resample(16_000) before the features"))
    if seen.speakers:
        rows.append(("speakers", f"{len(seen.speakers):,}"))
    if seen.texts:
        total = seen.characters.total()
        rows.append(("characters", f"{len(seen.characters):,} different, {total:,} in {counted(seen.texts, 'text')}"))
        rows.append(("most frequent", " ".join(f"{c}:{n}" for c, n in seen.characters.most_common(20))))
    if seen.left_out:
        rows.append(("left out", ", ".join(f"{reason}: {n:,}" for reason, n in seen.left_out.most_common())))
    if seen.empty_texts:
        rows.append(("empty texts", f"{seen.empty_texts:,}"))
    if seen.odd:
        rows.append(("odd characters", " ".join(f"U+{ord(c):04X}:{n}" for c, n in list(seen.odd.items())[:20])))
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
    confirm: Annotated[
        str | None, typer.Option(help="Look only at what this quarantine file names, and report what is still bad.")
    ] = None,
    grouping: GroupingOption = "wenet",
    text: Annotated[str, typer.Option(help="Suffix of the text, or json:NAME for a field of a JSON member.")] = "txt",
    fields: Fields = None,
    indexes: Annotated[str | None, typer.Option(help="Folder of `uio index --into`.")] = None,
    allow_pipes: AllowPipes = False,
    jobs: Processes = PROCESSES,
    json: Json = False,
) -> None:
    """Find what is damaged in data, before a training does.

    Structure, manifests, indexes, headers, texts and keys are checked. The exit code is 1 if anything is bad.
    """
    from uio_pipes.tools.data.checks import WantedChecks

    check_reading(grouping, text)
    if confirm is not None and quarantine is not None:
        raise typer.BadParameter("cannot be given with --confirm", param_hint="--quarantine")
    keep_inputs(paths, [quarantine])
    names = field_names(fields)
    wanted = WantedChecks(decode or confirm is not None, crc, rate, cast(Any, grouping), text, indexes, names)
    if confirm is not None:
        bad = _confirm(paths, confirm, wanted, jobs, json)
    else:
        bad = _verify(paths, wanted, quarantine, jobs, allow_pipes, json)
    verdict(not bad)


def _verify(paths: list[str], wanted: Any, quarantine: str | None, jobs: int, allow_pipes: bool, json: bool) -> bool:
    from uio_pipes.formats.lists.quarantine import Quarantine, entry_of
    from uio_pipes.tools.data.verify import verify as run

    reports = run(paths, wanted, jobs=jobs, allow_pipes=allow_pipes)
    file = None if quarantine is None else Quarantine(quarantine)  # if it cannot be written, it is an error now
    report = _last(reports)
    entries = [entry_of(found, "verify") for found in report.findings]
    if file is not None:
        for entry in entries:
            file.add(entry)
        file.close()
    if json:
        counts = {"items": report.items, "utterances": report.utterances, "bytes": report.bytes}
        print_json({**counts, "reasons": report.reasons, "findings": entries, "notes": report.notes})
    else:
        found = ", ".join(f"{count} {reason}" for reason, count in report.reasons.items()) or "nothing is wrong"
        read = f"{counted(report.utterances, 'utterance')} of {counted(report.items, 'item')}"
        for line in (f"{read}, {report.bytes / 1e6:.1f} MB: {found}", *report.notes):
            typer.echo(printable(line))
        show_problems(report.findings)
    return bool(report.findings)


def _confirm(paths: list[str], path: str, wanted: Any, jobs: int, json: bool) -> bool:
    from uio_pipes.formats.lists.quarantine import read_quarantine
    from uio_pipes.tools.data.verify import confirm

    result = confirm(paths, read_quarantine(path), wanted, jobs=jobs)
    if json:
        print_json(vars(result))
    else:
        elsewhere = f", {len(result.elsewhere)} of shards on none of the lists" if result.elsewhere else ""
        typer.echo(f"{_number(result.bad)} still bad, {_number(result.well)} well now{elsewhere}")
        for entry in result.bad[:20]:
            where = f"{entry['url']}: {entry.get('key') or entry.get('member')} [{entry['reason']}]"
            typer.echo(printable(where), err=True)
    return bool(result.bad)


def _number(entries: list[Any]) -> str:
    return f"{len(entries)} {'is' if len(entries) == 1 else 'are'}"


def _last(reports: Iterator[Any]) -> Any:
    """Return the last report, and show a progress bar until then."""
    from uio_pipes.tools.data.common import progress_bar

    last = None
    with progress_bar() as bar:
        task = bar.add_task("verifying", total=None)
        for last in reports:
            bar.update(task, completed=last.checked, total=last.items)
    return last


T = TypeVar("T")


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
    jobs: Processes = PROCESSES,
    json: Json = False,
) -> None:
    """Give shards random access and known lengths, without repacking.

    Each shard gets a small file beside it, and each list without a manifest gets one. TouchDatasets get checksums of
    their records, in a small file beside each .bin. With --members, archives that uio.from_table reads can be read in
    any order afterwards: tar.gz (by indexed_gzip), tar.zst, remote tars.
    """
    from uio_pipes.tools.data.index import index_lists
    from uio_pipes.tools.data.member_index import index_archives

    if members:
        if into or manifest:
            raise typer.BadParameter("stands alone: the index is beside the archive", param_hint="--members")
        _indexed(index_archives(paths, jobs=jobs, force=force, follow=_follow), json)
        return
    check_reading(grouping, text)
    keep_inputs(paths, [into])
    report = index_lists(
        paths,
        into=into,
        jobs=jobs,
        grouping=cast(Any, grouping),
        text=text,
        force=force,
        manifests="all" if manifest else "missing",
        follow=_follow,
    )
    _indexed(report, json)


def _indexed(report: Any, json: bool) -> None:
    if json:
        print_json(report.as_dict())
    else:
        typer.echo(str(report))
        show_problems(report.problems)
    verdict(not report.problems)


def check_reading(grouping: str, text: str) -> None:
    """Raises: typer.BadParameter if an option of reading tars is wrong."""
    from uio_pipes.stages.reading.load_from_tar import LoadFromTar

    if grouping not in ("wenet", "webdataset"):
        raise typer.BadParameter("must be 'wenet' or 'webdataset'", param_hint="--grouping")
    if text:
        parsed("--text", lambda text: LoadFromTar(text=text), text)


def _follow(items: Iterable[T], what: str, total: int) -> Iterator[T]:
    from uio_pipes.tools.data.common import follow

    return follow(((item, 1) for item in items), what, total)


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
        rows = listed(CORPORA)
        if as_json:
            print_json([dict(zip(("name", "title", "hours", "forms", "download"), row, strict=True)) for row in rows])
        else:
            print_tables([("Corpora", ("name", "what it is", "hours", "forms", "download"), rows)])
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
