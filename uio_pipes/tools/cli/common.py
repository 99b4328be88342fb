"""Shared by the commands: options, exit codes, tables, JSON, and errors as one line that helps.

Exit codes: 0 all well; 1 the command ran and found failures; 2 wrong use, or input that cannot be used; 130 Ctrl-C.
A command calls :func:`verdict` for failures, and raises ``UioError``, ``OSError`` or ``typer.BadParameter`` otherwise.
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
import shlex
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from uio_pipes.base.checks import in_words
from uio_pipes.base.errors import PipelineError, UioError
from uio_pipes.base.json_text import check_yaml
from uio_pipes.base.urls import CONTROL, printable, redact
from uio_pipes.io.retry import hasty
from uio_pipes.tools.reports.page import Alarm, Chart, PageTable, counts

if TYPE_CHECKING:
    from rich.console import Console

MOST = 60  # rows that a table of many lanes, ranks or stages has on a terminal
STOPPED = 130
TABLES = ("wav.scp", "feats.scp", "text", "segments", "utt2spk")  # in a Kaldi folder
T = TypeVar("T")
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer uses click, or a copy of its own


def console() -> Console:
    """Return stdout for rich; plain and 200 columns wide if that is not a terminal."""
    from rich.console import Console

    out = Console()
    return out if out.is_terminal else Console(width=200)


def drawn(tables: Iterable[PageTable], most: int | None = None) -> Iterator[Any]:
    """Yield what rich prints of tables: title, table, blank line. The last of ``most`` rows counts the others."""
    from rich.table import Table
    from rich.text import Text

    for title, headings, rows in tables:
        table, shown = Table(box=None, pad_edge=False, show_header=any(headings)), [list(row) for row in rows]
        if most is not None and len(shown) > most:
            shown[most - 1 :] = [[f"… {len(shown) - most + 1:,} more", *[""] * (len(headings) - 1)]]
        for number, heading in enumerate(headings):
            numeric = number > 0 and counts(heading, (row[number] for row in shown))
            table.add_column(heading, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
        for row in shown:
            table.add_row(*(Text(for_terminal(str(v)), style="bold red" if isinstance(v, Alarm) else "") for v in row))
        yield from (Text(printable(title), style="bold"), table, "")


def print_report(
    tables: list[PageTable],
    report: Any,
    as_json: bool,
    page: str | None = None,
    title: str = "",
    charts: Sequence[Chart] = (),
    most: int | None = None,
) -> None:
    """Write tables and charts as a page, if one is asked for; then print the tables, or the report as JSON.

    ``most``: rows of each table that are printed.
    """
    if page is not None:
        from uio_pipes.tools.reports.page import save

        save(page, title, tables, charts)
    if as_json:
        print_json(report)
    else:
        out = console()
        for part in drawn(tables, most):
            out.print(part)


def say(text: str) -> None:
    """Print one line on stdout."""
    typer.echo(for_terminal(text))


def for_terminal(text: str) -> str:
    """Return a text as it is printed: with ``--fields`` in the place of Python's ``fields=``, if the command has it."""
    if "fields" in text and _TAKES_FIELDS:
        from uio_pipes.formats.naming import TEXTLESS

        text = _NAMES.sub(_as_option, text).replace(TEXTLESS, "--text '' takes audio without transcripts")
        text = re.sub(r"`?fields`?\[?'?(\w*)'?\]? (asks|names|says)", r"--fields \1 \2", text).replace("  ", " ")
        text = re.sub(r"\b(leave|by) fields\b=?", r"\1 --fields", text)
    return printable(text)


_NAMES = re.compile(r'\bfields=(\{(?:"(?:[^"\\]|\\.)*"|[^{}"])*\})')


def _as_option(found: re.Match[str]) -> str:
    try:
        return f"--fields {shlex.quote(','.join(map('='.join, json.loads(found[1]).items())))}"
    except (ValueError, TypeError):  # Python that is no JSON
        return found[0]


_TAKES_FIELDS: list[bool] = []  # holds something if the command that runs has the option


def takes_fields(names: Any) -> Any:
    """Note that this command has ``--fields``, and return its value."""
    _TAKES_FIELDS.append(True)
    return names


def check_suffix(path: str | None, *suffixes: str) -> None:
    """Raises: typer.BadParameter unless ``path`` is None, or ends in one of ``suffixes`` and its folder exists."""
    if path is None:
        return
    if not path.endswith(suffixes):
        raise typer.BadParameter(f"{path} must end in {in_words(suffixes, 'or')}")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise typer.BadParameter(f"there is no folder {folder}")


def print_json(report: Any) -> None:
    """Print JSON on stdout; characters that a terminal would obey, or that cannot be encoded, are escaped."""
    text = redact(json.dumps(_finite(report), ensure_ascii=False, default=str))
    typer.echo(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _finite(report: Any) -> Any:
    """Return a report with None for numbers that JSON does not have."""
    if isinstance(report, dict):
        return {name: _finite(one) for name, one in report.items()}
    if isinstance(report, (list, tuple)):
        return [_finite(one) for one in report]
    return None if isinstance(report, float) and not math.isfinite(report) else report


def verdict(ok: bool) -> None:
    """End the command with exit code 1 unless all is ``ok``."""
    if not ok:
        raise typer.Exit(1)


def parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    """Return the parsed value of an option; a ValueError of ``parse`` becomes the message."""
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def show_problems(problems: list[Any]) -> None:
    """Print failures on stderr, a line for each of the first 20."""
    for error in problems[:20]:
        typer.echo(for_terminal(str(error)), err=True)
    if len(problems) > 20:
        typer.echo(f"… {len(problems)} in all: --json shows them", err=True)


def read_conf_block(path: str | Path, option: str) -> dict[str, Any]:
    """Read the ``dataset_conf`` of a WeNet YAML, or a YAML of its keys alone. Raises: typer.BadParameter."""
    import yaml

    try:
        text = Path(path).read_bytes()
        check_yaml(text, str(path))
        read = yaml.safe_load(text)
    except PipelineError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    except ValueError as error:  # of a date that there is not, for example
        raise typer.BadParameter(f"{path} is not YAML: {error}", param_hint=option) from error
    block = read.get("dataset_conf", read) if isinstance(read, dict) else None
    if not isinstance(block, dict):
        raise typer.BadParameter(f"{path} must have the block dataset_conf", param_hint=option)
    return block


def local_file(path: Path) -> None:
    """Raises: typer.BadParameter if ``path`` is a URL: small files are only written on this machine."""
    if ":/" in str(path):
        raise typer.BadParameter(f"{path} must be a path on this machine", param_hint="OUT")


def keep_inputs(inputs: Iterable[str | Path | None], outputs: Iterable[str | Path | None]) -> None:
    """Raises: typer.BadParameter if a file to write is one of the files to read, or would be lost at the end."""
    read = [path for given in inputs if given is not None for path in _files_of(str(given))]
    for out in (str(given) for given in outputs if given is not None):
        if out.startswith("memory://"):
            raise typer.BadParameter(
                f"{out} is in memory only and is lost when the command ends: name a folder, or a URL as s3://bucket/x"
            )
        for path in read:
            if _same(path, out):
                raise typer.BadParameter(f"{out} is read here, and would be overwritten: name another file to write to")


def _files_of(given: str) -> Iterator[str]:
    """Yield the files that a path stands for: itself, the tables of a folder, the files of a glob."""
    yield given
    if os.path.isdir(given):
        yield from (os.path.join(given, name) for name in TABLES)
    elif glob.has_magic(given):
        yield from glob.iglob(given)


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # one of them does not exist, or is a URL
        return os.path.realpath(one) == os.path.realpath(other)


def run(app: Callable[..., Any]) -> int:
    """Run a typer app with the arguments of this process; return the exit code."""
    hasty()
    _TAKES_FIELDS.clear()
    try:
        code = int(app(standalone_mode=False) or 0)
        if code == STOPPED:  # typer's own answer to Ctrl-C
            raise KeyboardInterrupt
        return code
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("stopped; the same command goes on where it stopped, if it is one that writes", err=True)
        return STOPPED
    except _UsageError as error:
        return _wrong_use(error)
    except Exception as error:
        if os.environ.get("UIO_DEBUG"):
            typer.echo(redact(traceback.format_exc()), err=True)
        typer.echo(f"error: {one_line(error)}", err=True)
        return 2


def _wrong_use(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "uio")
    message = printable(" ".join(error.format_message().split()).rstrip("."))  # type: ignore[attr-defined]
    if not message:  # no command was given, and the help has been shown
        return 2
    message = message.replace("Value error, ", "", 1)  # added by typer's parser
    typer.echo(f"error: {message} (all options: {command} --help)", err=True)
    return 2


def one_line(error: Exception) -> str:
    """Return the error's text on one line, without credentials in URLs."""
    if isinstance(error, UioError):
        text = str(error)
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, ModuleNotFoundError):
        text = f"a package is not installed: {error}"
    else:
        text = f"{type(error).__name__}: {error} (UIO_DEBUG=1 shows where)"
    return for_terminal(" ".join(text.split()))
