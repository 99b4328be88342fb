"""``python -m benchmarks``: what is measured, and what is missing for it; ``python -m benchmarks NAME …`` measures.

``python -m benchmarks all`` runs every script, one after the other, which takes hours.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.common import INSTALL

FOLDER = Path(__file__).parent
PEERS = (
    "webdataset",
    "lhotse",
    "megatron",
    "torchcodec",
    "litdata",
    "streaming",
    "grain",
    "spdl",
    "kaldiio",
    "datasets",
)
PEERS += ("ray", "torchaudio")


def scripts() -> dict[str, str]:
    """Return the scripts that measure something, with the first paragraph of what they say of themselves."""
    found = {}
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        text = path.read_text(encoding="utf-8")
        if "def main()" in text and "Report(" in text:
            said = ast.get_docstring(ast.parse(text)) or ""
            found[path.stem] = " ".join(said.partition("\n\n")[0].split())
    return found


def main() -> None:
    """Show the scripts, or run those that are named; exits with the number of those that failed."""
    known, wanted = scripts(), sys.argv[1:]
    wanted = list(known) if wanted == ["all"] else wanted
    if missing := [name for name in PEERS if find_spec(name) is None]:
        print(f"not installed: {', '.join(missing)}; {INSTALL}")
    if unknown := [name for name in wanted if name not in known]:
        sys.exit(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}")
    if not wanted:
        table = Table("python -m benchmarks …", "claim")
        for name, claim in known.items():
            table.add_row(name, claim)
        Console().print(table)
    codes = [subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode for name in wanted]
    sys.exit(sum(code != 0 for code in codes))


if __name__ == "__main__":
    main()
