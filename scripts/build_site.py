"""Build the documentation site; run it by ``scripts/docs``.

Pages are written for GitHub: links go from file to file of the repository. Here they are copied to where the site has
them (``docs/train.md`` to ``train.md``, ``recipes/aishell/README.md`` to ``recipes/aishell.md``); links follow, and
other files that they lead to come along. Notebooks become pages with the outputs that they are stored with. The
generator, Zensical, then reads the copies. ``llms_txt.py`` adds what language models read.
"""

from __future__ import annotations

import argparse
import ast
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llms_txt

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "docs/**/*.md",
    "docs/*.ipynb",
    "recipes/*/README.md",
    "benchmarks/results/*.md",
    "skills/*/SKILL.md",
    "AGENTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
WITHOUT_SIDEBARS = "---\nhide: [navigation, toc]\n---\n\n"  # of the first page, by which docs/site.css knows it
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"^(?=\[\w+\.py\]\((\w+\.py)\) )", re.MULTILINE)  # a line that begins with a script beside its page
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
ROLE = re.compile(r":(?:class|func|meth|attr|mod|data):`~?([^`]+)`")
DEFAULT = re.compile(r"""\s+Default:\s(?:None|True|False|"[^"\n]*"|-?\d[\d.,]*?|\([^()\n]*\))\.$""", re.MULTILINE)


class BrokenLink(Exception):
    """A link of a page that leads to no file."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Build the documentation site.")
    parser.add_argument("--serve", action="store_true", help="show it on http://localhost:8000 and follow changes")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "docs", help="where (default: build/docs)")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / "pages").is_dir():
        sys.exit(f"{folder} holds something else; name a new folder, it is emptied first")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        stage(folder)
    except BrokenLink as error:
        sys.exit(str(error))
    command = [str(Path(sys.executable).with_name("zensical"))]
    if options.serve:
        serve([*command, "serve"], folder)
        return
    started = time.monotonic()
    if subprocess.run([*command, "build", "--strict"], cwd=folder).returncode:
        sys.exit("the site has faults; they are told above")
    llms_txt.texts(folder, {place(page): moved(page, folder, text_place) for page in pages()}, write)
    if missing := undocumented(folder / "site"):
        sys.exit(f"docs/api has no `::: uio_pipes.{missing[0]}` with a docstring; missing are: {', '.join(missing)}")
    print(f"{folder / 'site' / 'index.html'}: built in {time.monotonic() - started:.1f} s")


def serve(command: list[str], folder: Path) -> None:
    """Run the generator's server, and copy what changes, until it is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with subprocess.Popen(command, cwd=folder) as server:
        try:
            while server.poll() is None:
                time.sleep(1)
                try:
                    stage(folder)
                except BrokenLink as error:  # its writer may be in the middle of a line
                    print(error, file=sys.stderr)
        except KeyboardInterrupt:
            pass
        finally:
            server.terminate()


def stage(folder: Path) -> None:
    """Write the generator's input into ``folder``: its configuration, the pages, the package for the reference."""
    write(folder / "mkdocs.yml", (ROOT / "mkdocs.yml").read_text())
    write(folder / "pages" / "site.css", (ROOT / "docs" / "site.css").read_bytes())
    for page in pages():
        head = WITHOUT_SIDEBARS if place(page) == Path("index.md") else ""
        write(folder / "pages" / place(page), head + moved(page, folder))
    for module in (ROOT / "uio_pipes").rglob("*.py*"):
        if module.suffix in (".py", ".pyi"):
            write(folder / module.relative_to(ROOT), shown(module.read_text()))


def pages() -> list[Path]:
    """Return the files of the repository that become pages."""
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def shown(source: str) -> str:
    """Return the source of a module as the reference is to show it: no roles, and each default once."""
    return ROLE.sub(r"`\1`", DEFAULT.sub("", source))


def place(file: Path) -> Path:
    """Return where the site has a file of the repository."""
    path = file.relative_to(ROOT)
    if path.name in ("README.md", "SKILL.md"):
        path = path.parent.with_suffix(".md")
    if path.suffix == ".ipynb":
        path = path.with_suffix(".md")
    return path.relative_to("docs") if path.parts[0] == "docs" else path


def text_place(file: Path) -> Path:
    """Return where the site has the text of a page, or another file, of the repository."""
    return llms_txt.text_place(place(file)) if file.suffix in (".md", ".ipynb") else place(file)


def moved(page: Path, folder: Path, place: Callable[[Path], Path] = place) -> str:
    """Return the text of ``page`` with its links from place to place; copy the files that are not pages."""

    def follow(match: re.Match[str]) -> str:
        start, name, anchor, end = match.groups()
        target = (page.parent / name).resolve()
        if "://" in name:
            return match[0]
        if not target.is_file():
            raise BrokenLink(f"{page.relative_to(ROOT)}: the link {name} leads to no file")
        if target.suffix not in (".md", ".ipynb"):
            write(folder / "pages" / place(target), target.read_bytes())
        return f"{start}{os.path.relpath(place(target), place(page).parent)}{anchor or ''}{end}"

    text = page.read_text() if page.suffix == ".md" else "\n\n".join(parts(json.loads(page.read_text())))
    text = SCRIPT.sub(lambda match: f"```python\n{(page.parent / match[1]).read_text()}```\n\n", text)
    blocks = FENCE.findall(text)
    prose = [LINK.sub(follow, part) for part in FENCE.split(text)]
    return "".join(part for pair in zip(prose, [*blocks, ""], strict=True) for part in pair)


def parts(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the texts, code blocks and stored outputs of a notebook as Markdown; pictures are within the page."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
            continue
        yield f"```{'bash' if source.startswith('%%bash') else 'python'}\n{source}\n```"
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text")})
            if "image/png" in data:
                told = html.escape(output["metadata"]["image/png"]["alt"])
                yield f'<img alt="{told}" src="data:image/png;base64,{data["image/png"].strip()}">'
            else:
                yield f"``` {{ .text .output }}\n{''.join(data['text/plain']).rstrip()}\n```"


def undocumented(site: Path) -> list[str]:
    """Return the public names that the reference in ``site`` lacks: exports, and methods of pipelines and loaders."""
    reference = "".join(page.read_text() for page in (site / "api").rglob("*.html"))
    package = ROOT / "uio_pipes"
    names = [
        *exports(package / "api.py"),
        *(f"Pipeline.{name}" for name in methods(package / "pipeline.pyi", "Pipeline")),
    ]
    names += [f"Loader.{name}" for name in methods(package / "run" / "loader.py", "Loader")]
    return [name for name in names if f'id="uio_pipes.{name}"' not in reference]


def exports(module: Path) -> list[str]:
    """Return what ``__all__`` of a module names."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{module} has no __all__")


def methods(module: Path, name: str) -> list[str]:
    """Return the public methods that a class in ``module`` defines."""
    body = next(n.body for n in ast.parse(module.read_text()).body if isinstance(n, ast.ClassDef) and n.name == name)
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def write(path: Path, content: str | bytes) -> None:
    """Write a file if it is not there as it should be: the server watches for changes."""
    data = content.encode() if isinstance(content, str) else content
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
