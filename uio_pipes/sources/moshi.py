"""``from_moshi``: the lists of moshi-finetune, stereo dialogues with the words of their speakers."""

from __future__ import annotations

from uio_pipes.formats.tables.description import Table
from uio_pipes.io.access import AccessOptions, Unpack, reaches_files
from uio_pipes.pipeline import Pipeline
from uio_pipes.sources.seen import Found, Seen
from uio_pipes.sources.table.source import TablePaths, from_table


class MoshiList:
    """Lists of moshi-finetune."""

    sentence = "moshi-finetune's lists of stereo dialogues, with `a.json` beside `a.wav`"

    @classmethod
    def recognize(cls, seen: Seen) -> Found | None:
        if not seen.is_json or seen.fields or seen.objects[0].keys() != {"path", "duration"}:
            return None
        return Found("moshi-finetune list", from_moshi, (seen.path,))


@reaches_files
def from_moshi(paths: TablePaths, *, shuffle: bool = False, **access: Unpack[AccessOptions]) -> Pipeline:
    """Start a pipeline from moshi-finetune's lists: lines of ``{"path": "rel/a.wav", "duration": 24.52}``.

    Each line is a dialogue in two channels, the model left (0) and the user right (1). Beside ``a.wav`` is ``a.json``
    with its ``alignments``, which become the ``timeline``. Without it, the dialogue is the failure
    ``missing_timeline``. The words of ``SPEAKER_MAIN`` are in channel 0, those of others in channel 1.
    ``text_conditions`` are ``timeline.conditions``. The ``key`` is the path without its suffix. Decode both channels:
    ``.decode_audio(channel=[0, 1])``; mono audio is ``no_such_channel`` then, and has ``absent_channel`` words.

    Args:
        paths: the list: a path, URL or glob, or several in a list. Paths in it start at its folder.
        shuffle: whether to deal the dialogues in another order in each epoch. Default: False.
        **access: how files are reached: :class:`AccessOptions`.

    Raises:
        PipelineError: an argument breaks a rule.
        ListError: when the pipeline runs, if the list is missing, empty or written otherwise.
    """
    table = paths if isinstance(paths, Table) else Table(paths, format="jsonl")  # type: ignore[arg-type]
    fields = {"key": r"path | m/(.+)\.[^.\/]+$/", "wav": "path", "duration": "duration"}
    begun = from_table(table, fields=fields, shuffle=shuffle, **access)
    return begun.timeline("{stem}.json", storage_options=access.get("storage_options"))
