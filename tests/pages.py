"""The pages of the documentation: their blocks, and ``python pages.py PAGE``, which runs a page as a reader would.

That is: in the working directory, block by block from the first line on. Each Python block is a script of its own (one
whose first line is a comment with a file's name is saved under it), and so is a YAML block;
each bash block is given to bash. A block behind
the comment ``<!-- not run: REASON -->`` is passed over; one behind ``<!-- saved: REASON -->`` is only saved.

What a block prints is checked where the block says it: the text after ``# →`` is a line that it prints, with ``…`` for
any text. What else must hold, and no reader needs to see, stands after the block, in ``<!-- check`` to ``-->``.
"""

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
SKILLS = sorted((ROOT / "skills").glob("*/SKILL.md"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *SKILLS]
FENCE = re.compile(
    r"^(?:<!-- (not run|saved): (.+) -->\n)? *```(.*)\n((?:.*\n)*?) *```$(?:\n\n?<!-- check\n((?:.*\n)*?)-->$)?",
    re.MULTILINE,
)
RESULT = re.compile(r"# → (.+)$", re.MULTILINE)
NAMED = re.compile(r"# ([\w/]+\.(?:py|yaml))\b")


@dataclass(frozen=True)
class Block:
    """One fenced block. ``line``: the page's, of the block's first one; ``not_run``, ``saved``: why, or nothing;
    ``check``: what is run behind it."""

    page: str
    line: int
    heading: str
    language: str
    code: str
    not_run: str = ""
    saved: str = ""
    check: str = ""


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start(4)) + 1
        why = {match[1].replace(" ", "_"): match[2]} if match[1] else {}
        headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text[: match.start()]), re.MULTILINE)
        title, check = headings[-1].strip("`"), match[5] or ""
        found.append(Block(page.name, line, title, match[3], match[4], check=check, **why))
    return found


def run(page: Path) -> None:
    """Run all blocks. Python blocks run in forks of this process, which has imported what takes long."""
    import_module("uio_pipes.api")
    sys.path[0] = os.getcwd()  # as of a script that lies there
    for block in blocks(page):
        if block.not_run or block.language not in ("python", "bash", "yaml"):
            continue
        print(f"--- {block.page}:{block.line} {block.heading} ({block.language})", flush=True)
        if block.saved or block.language == "yaml":
            _save(block)
            continue
        if block.language == "bash":
            subprocess.run(["bash", "-euo", "pipefail", "-c", block.code], check=True)
            continue
        child = os.fork()
        if not child:
            _script(block)
            return  # and end as a script ends
        if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(f"{block.page}:{block.line}: this block ended with {code}")


def _save(block: Block) -> None:
    if named := NAMED.match(block.code):
        Path(named[1]).write_text(block.code, encoding="utf-8")


def missing(code: str, printed: str) -> list[str]:
    """What a block says that it prints, and does not; in this order."""
    lines = iter(printed.splitlines())
    told = [(text, re.compile(".*".join(map(re.escape, text.split("…"))))) for text in RESULT.findall(code)]
    return [text for text, pattern in told if not any(pattern.fullmatch(line) for line in lines)]


def _script(block: Block) -> None:
    _save(block)
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{block.page}.py"
        code = "\n" * (block.line - 1) + block.code + block.check  # errors tell the page's lines
        path.write_text(code, encoding="utf-8")
        sys.argv = [str(path)]
        with contextlib.redirect_stdout(printed) if RESULT.search(code) else contextlib.nullcontext():
            runpy.run_path(str(path), run_name="__main__")
    print(printed.getvalue(), end="", flush=True)
    if lost := missing(block.code, printed.getvalue()):
        sys.exit(f"{block.page}:{block.line}: this is not printed: {lost[0]}")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
