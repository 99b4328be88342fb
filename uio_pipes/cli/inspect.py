"""``uio inspect``: shows what data contain."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from uio_pipes.base.printable import counted
from uio_pipes.cli.common import Fields, Json, field_names, keep_inputs, print_json, verdict
from uio_pipes.cli.tables import check_suffix, print_tables

if TYPE_CHECKING:
    from uio_pipes.reports.inspect import Contents
    from uio_pipes.reports.page import PageTable

CHARACTERS = 30  # most characters whose counts the page shows
BINS = 12  # most bars of the histogram


def inspect(
    paths: Annotated[
        list[str],
        typer.Argument(help="Lists, shards, indexes, manifests, Parquet files, texts, YAML mixes, folders, URLs."),
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Look at no more than this number of utterances of each.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    report: Annotated[str | None, typer.Option(help="Write a page with bars: a .html file.")] = None,
    fields: Fields = None,
    allow_pipes: Annotated[bool, typer.Option("--allow-pipes", help="Run a Kaldi folder's commands.")] = False,
    as_json: Json = False,
) -> None:
    """Show what data contain: counts, hours, durations, characters, sample rates, failures, a few samples."""
    check_suffix(report, ".html")
    keep_inputs(paths, [report])
    from uio_pipes.prep.recognize import recognize
    from uio_pipes.reports import inspect as look

    names = field_names(fields)
    sources = [recognize(path, allow_pipes, names) for path in paths]  # an unknown one is an error before any is read
    total = look.Contents()
    parts: list[dict[str, Any]] = []
    for source in sources:
        seen = look.inspect(source.pipeline, limit=limit, jobs=jobs)
        counts = {"utterances": seen.utterances, "hours": seen.hours, "failures": seen.failures.total()}
        parts.append({"path": source.path, "kind": source.kind, **counts})
        total.add(seen)
    if report is not None:
        from uio_pipes.reports.page import save

        save(report, "What is in the data", tables(parts, total) + _characters(total))
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
    named: dict[str, Counter[Any]] = {
        "codecs": seen.codecs,
        "sample rates (Hz)": seen.rates,
        "channels": seen.channels,
        "fields": seen.fields,
    }
    rows += [
        (name, ", ".join(f"{k}: {n:,}" for k, n in counts.most_common(12))) for name, counts in named.items() if counts
    ]
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


def _characters(seen: Contents) -> list[PageTable]:
    """Return the most frequent characters, only for the page, as a browser has the fonts."""
    from uio_pipes.reports.page import Bar

    top = seen.characters.most_common(CHARACTERS)
    rows = [(c, f"U+{ord(c):04X}", f"{n:,}", Bar(n / top[0][1])) for c, n in top]
    return [("Most frequent characters", ("", "", "count", ""), rows)] if rows else []


def _histogram(seen: Contents) -> list[tuple[str, str, str]]:
    from uio_pipes.reports.inspect import BIN
    from uio_pipes.reports.page import Bar

    last = max(seen.durations)
    width = max(1, -(-(last + 1) // BINS))
    sums = [sum(seen.durations[i] for i in range(at, at + width)) for at in range(0, last + 1, width)]
    longest = max(sums)
    return [
        (f"{i * width * BIN:g} to {(i + 1) * width * BIN:g}", f"{n:,}", Bar(n / longest)) for i, n in enumerate(sums)
    ]
