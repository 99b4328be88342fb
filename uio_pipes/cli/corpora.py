"""``uio corpora``: the published corpora that are read by name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from uio_pipes.cli.common import print_json, print_tables, say
from uio_pipes.cli.options import Json


def corpora(
    name: Annotated[str | None, typer.Argument(help="The corpus to show; FILE.py:NAME is a card of yours.")] = None,
    as_json: Json = False,
) -> None:
    """List the published corpora that are read by name, or show one: what to download, its layout, parts and fields.

    The licence of each is between you and who publishes it. `uio inspect NAME:FOLDER` shows what is there of one.
    """
    from uio_pipes.prep.corpora import own_card
    from uio_pipes.reports.corpora import described, listed
    from uio_pipes.sources.corpora.source import CORPORA, card_of

    if name is None:
        rows = listed(CORPORA)
        if as_json:
            print_json([dict(zip(("name", "title", "hours", "forms"), row, strict=True)) for row in rows])
        else:
            print_tables([("Corpora", ("name", "what it is", "hours", "forms"), rows)])
        return
    file, _, own = name.rpartition(":")
    card = own_card(file, own) if file else card_of(name)
    if as_json:
        report: dict[str, Any] = {key: getattr(card, key) for key in ("name", "title", "hours", "download", "notes")}
        lists: dict[str, Any] = {key: list(getattr(card, key)) for key in ("parts", "train", "options", "columns")}
        layouts = [{"form": layout.form, "paths": layout.places} for layout in card.layouts]
        print_json({**report, **lists, "layouts": layouts})
        return
    for line in described(card).splitlines():
        say(line)
