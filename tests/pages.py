"""The pages of the documentation: their blocks, and ``python pages.py PAGE``, which runs a page as a reader would.

That is: in the working directory, block by block from the first line on. Each Python block is a script of its own (one
whose first line is a comment with a file's name is saved under it), each bash block is given to bash. A block behind
the comment ``<!-- not run: REASON -->`` is passed over.
"""

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
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?:<!-- not run: (.+) -->\n)? *```(.*)\n((?:.*\n)*?) *```$", re.MULTILINE)
NAMED = re.compile(r"# (\w+\.py)\b")


@dataclass(frozen=True)
class Block:
    """One fenced block. ``line``: the page's, of the block's first one; ``not_run``: why, or nothing."""

    page: str
    line: int
    heading: str
    language: str
    code: str
    not_run: str


def blocks(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start(3)) + 1
        headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text[: match.start()]), re.MULTILINE)
        found.append(Block(page.name, line, headings[-1].strip("`"), match[2], match[3], match[1] or ""))
    return found


def run(page: Path) -> None:
    """Run all blocks. Python blocks run in forks of this process, which has imported what takes long."""
    import_module("uio_pipes.api")
    sys.path[0] = os.getcwd()  # as of a script that lies there
    for block in blocks(page):
        if block.not_run or block.language not in ("python", "bash"):
            continue
        print(f"--- {block.page}:{block.line} {block.heading} ({block.language})", flush=True)
        if block.language == "bash":
            subprocess.run(["bash", "-euo", "pipefail", "-c", block.code], check=True)
            continue
        child = os.fork()
        if not child:
            _script(block)
            return  # and end as a script ends
        if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            sys.exit(f"{block.page}:{block.line}: this block ended with {code}")


def _script(block: Block) -> None:
    if named := NAMED.match(block.code):
        Path(named[1]).write_text(block.code, encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{block.page}.py"
        path.write_text("\n" * (block.line - 1) + block.code, encoding="utf-8")  # errors tell the page's lines
        sys.argv = [str(path)]
        runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
