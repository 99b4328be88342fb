"""Metrics for Prometheus, read by its own parsers: from a real server, and from a file."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.core.statistics import RunRecord, Waits
from uio_pipes.inspect.metrics import COUNTERS, GAUGES, SKIPPED, WAIT, Exporter

client = pytest.importorskip("prometheus_client", reason="could not import prometheus_client: pip install it")
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def page(port: int, accept: str = "text/plain") -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request) as answer:
        return str(answer.read().decode())


def samples(text: str) -> Samples:
    from prometheus_client.parser import text_string_to_metric_families

    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    values = {(one.name, frozenset(one.labels.items())): one.value for one in found}
    assert len(values) == len(found), "each only once"
    return values


def of(found: Samples, name: str, rank: int = 0, **labels: str) -> float:
    return found[name, frozenset({"rank": str(rank), "peer": "0", **labels}.items())]


def loader(corpus: Corpus, **options: Any) -> uio.Loader:
    pipeline = (
        uio.from_shard_list(corpus.list).decode_audio().filter(min_frames=40).fbank(num_mel_bins=6).batch(4).pad()
    )
    return uio.Loader(pipeline, seed=3, **options)


def exported(exporter: Exporter) -> Samples:
    registry = client.CollectorRegistry()
    registry.register(exporter)
    return samples(client.generate_latest(registry).decode())


def record(epoch: int = 0, rank: int = 0, **counts: Any) -> RunRecord:
    return RunRecord(1.0, 30.0, "h", 1, 0, rank, 4, epoch, "running", 7_000, uio.Stats(**counts))


def test_a_server_tells_what_the_loader_counted(many_shards: Corpus) -> None:
    port, watched = free_port(), loader(many_shards, num_workers=1)
    batches = sum(1 for _ in uio.watch(watched, every=1e-9, to=f"prometheus:{port}"))
    found, stats = samples(page(port)), watched.stats()
    assert of(found, "uio_batches_total") == batches == of(found, f"{WAIT}_count")
    assert of(found, "uio_utterances_total") == stats.utterances
    assert of(found, "uio_audio_seconds_total") == pytest.approx(stats.hours * 3600)
    assert 1 - of(found, "uio_frames_total") / of(found, "uio_padded_frames_total") == pytest.approx(
        stats.padding_ratio
    )
    assert of(found, f"{SKIPPED}_total", reason="too_short") == stats.skipped["too_short"] > 0
    assert of(found, f"{WAIT}_sum") == pytest.approx(stats.waits.seconds)
    assert of(found, "uio_read_bytes_total") == stats.bytes_read > 0
    assert of(found, "uio_buffer_bytes") == stats.buffers
    assert of(found, "uio_resident_memory_bytes") > 10_000_000
    assert of(found, "uio_running") == 0, "the epoch is over"
    for batch in uio.watch(watched, every=1e-9, to=f"prometheus:{port}"):
        assert batch is not None
    found = samples(page(port))
    assert of(found, "uio_batches_total") == 2 * batches, "the second epoch goes on, at the same port"
    assert of(found, "uio_epoch") == 1
    strict = page(port, "application/openmetrics-text; version=1.0.0")
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    assert strict.endswith("# EOF\n")
    families = {family.name: family.type for family in text_string_to_metric_families(strict)}
    assert families == {
        **dict.fromkeys((*COUNTERS, SKIPPED), "counter"),
        **dict.fromkeys(GAUGES, "gauge"),
        WAIT: "histogram",
    }


def needed(program: str) -> str:
    """The path of a program of Debian's package prometheus."""
    return shutil.which(program) or pytest.skip(f"could not import {program}: apt-get install prometheus")


def test_promtool_finds_nothing_to_say_against_the_metrics(many_shards: Corpus, tmp_path: Path) -> None:
    """Neither of what is written nor of what is served: format, names, units and texts."""
    promtool, port, watched = needed("promtool"), free_port(), loader(many_shards)
    for to in (f"textfile:{tmp_path}", f"prometheus:{port}"):
        for batch in uio.watch(watched, to=to):
            assert batch is not None
    for text in ((tmp_path / "uio-rank-00000.prom").read_text(), page(port)):
        assert f"{WAIT}_bucket" in text
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_real_prometheus_collects_them_and_answers_what_the_dashboard_asks(
    many_shards: Corpus, tmp_path: Path
) -> None:
    port, own, watched = free_port(), free_port(), loader(many_shards)
    batches = sum(1 for _ in uio.watch(watched, to=f"prometheus:{port}"))
    jobs = {"job_name": "uio", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [jobs]}))  # JSON is YAML
    command = [needed("prometheus"), f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]

    def asked(expression: str) -> Any:
        url = f"http://127.0.0.1:{own}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url) as answer:
            return json.load(answer)["data"]["result"]

    with subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{own}"], stderr=subprocess.DEVNULL) as server:
        try:
            found: list[Any] = []
            while not found:
                time.sleep(0.2)
                with contextlib.suppress(OSError):
                    found = asked("uio_batches_total")
                assert server.poll() is None
            assert [float(one["value"][1]) for one in found] == [batches]
            assert found[0]["metric"].items() >= {"rank": "0", "peer": "0", "job": "uio"}.items()
            targets = [target for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
            values = {"job": "uio", "rank": ".*", "__rate_interval": "1m"}
            while not asked("rate(uio_batches_total[1m])"):  # it takes two looks
                time.sleep(0.2)
            for target in targets:
                expression = re.sub(r"\$(\w+)", lambda name: values[name[1]], target["expr"])
                assert asked(expression), f"nothing is shown for {expression}"
        finally:
            server.terminate()


def test_a_port_is_free_again_when_its_loader_is_gone_and_not_before(
    many_shards: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, first = free_port(), loader(many_shards)
    uio.watch(first, to=f"prometheus:{port}")
    with pytest.raises(uio.PipelineError, match=r"in use.*a port that is free"):
        uio.watch(loader(many_shards), to=f"prometheus:{port}")
    monkeypatch.setenv("LOCAL_RANK", "1")
    other = loader(many_shards)
    next(iter(uio.watch(other, to=f"prometheus:{port}")))
    assert of(samples(page(port + 1)), "uio_running") in (0, 1), "of another rank on this machine"
    monkeypatch.setenv("LOCAL_RANK", "0")
    del first
    again = loader(many_shards)
    list(uio.watch(again, to=f"prometheus:{port}"))
    assert of(samples(page(port)), "uio_batches_total") > 0


def test_a_file_for_each_rank(many_shards: Corpus, tmp_path: Path) -> None:
    for rank in range(2):
        watched = loader(many_shards, rank=rank, world_size=2, uneven="join")
        batches = sum(1 for _ in uio.watch(watched, to=f"textfile:{tmp_path}/prom"))
        found = samples((tmp_path / "prom" / f"uio-rank-{rank:05d}.prom").read_text())
        assert of(found, "uio_batches_total", rank) == batches > 0
    assert len(list((tmp_path / "prom").iterdir())) == 2, "nothing half written is left"


def test_a_resumed_run_begins_at_zero(many_shards: Corpus, tmp_path: Path) -> None:
    begun = loader(many_shards)
    for _, _ in zip(begun, range(3), strict=False):
        pass
    resumed = loader(many_shards)
    resumed.load_state_dict(begun.state_dict())
    before = resumed.stats().batches
    rest = sum(1 for _ in uio.watch(resumed, to=f"textfile:{tmp_path}"))
    found = samples((tmp_path / "uio-rank-00000.prom").read_text())
    assert of(found, "uio_batches_total") == rest == resumed.stats().batches - before


@pytest.mark.parametrize(
    ("epochs", "batches", "total"),
    [
        ([0, 0, 1, 1], [5, 9, 0, 3], 7),  # a new epoch
        ([0, 0, 1, 1], [5, 9, 3, 4], 8),  # whose beginning was not recorded
        ([0, 0, 1, 1], [5, 9, 9, 12], 7),  # of a stream that goes on
        ([0, 0, 0, 0], [5, 9, 6, 8], 6),  # an earlier state was loaded
    ],
)
def test_counters_only_grow(epochs: list[int], batches: list[int], total: int) -> None:
    exporter = Exporter()
    assert exported(exporter) == {}, "nothing is known yet"
    shown = []
    for epoch, count in zip(epochs, batches, strict=True):
        exporter.add(record(epoch, batches=count))
        shown.append(of(exported(exporter), "uio_batches_total"))
    assert shown[-1] == total
    assert shown == sorted(shown)


def test_the_histogram_counts_up_to_its_bounds() -> None:
    exporter, waits = Exporter(), Waits()
    exporter.add(record())
    for seconds in (0.00005, 0.0015, 0.0015, 0.3, 70.0):
        waits.add(seconds)
    exporter.add(record(waits=waits))
    found = exported(exporter)
    upto = {le: of(found, f"{WAIT}_bucket", le=le) for le in ("0.0001", "0.001", "0.002", "0.2", "0.5", "50.0", "+Inf")}
    assert upto == {"0.0001": 1, "0.001": 1, "0.002": 3, "0.2": 3, "0.5": 4, "50.0": 4, "+Inf": 5}
    assert of(found, f"{WAIT}_count") == 5
    bounds = [float(dict(labels)["le"]) for name, labels in found if name == f"{WAIT}_bucket"]
    for bound in bounds[:-1]:  # each at a border of the places that a wait is counted in
        at = Waits()
        at.add(bound * 1.004)
        assert at.p50 == pytest.approx(bound, rel=0.07)
    assert len(bounds) == 19


@pytest.mark.parametrize(
    ("to", "says"), [("prometheus:many", "a port that is free"), ("textfile:/dev/null/x", "give a folder")]
)
def test_what_cannot_be_is_said_at_once(many_shards: Corpus, to: str, says: str) -> None:
    with pytest.raises(uio.PipelineError, match=says):
        uio.watch(loader(many_shards), to=to)


def test_without_the_package_the_error_names_it(many_shards: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(uio.PipelineError, match=r'pip install "uio_pipes\[prometheus\]"'):
        uio.watch(loader(many_shards), to="textfile:x")


# The dashboard for Grafana


def test_the_dashboard_shows_metrics_that_there_are() -> None:
    board = json.loads(DASHBOARD.read_text())
    there = (
        {f"{name}_total" for name in (*COUNTERS, SKIPPED)} | {*GAUGES} | {f"{WAIT}_{end}" for end in ("bucket", "sum")}
    )
    panels = board["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    used = {name for expression in asked for name in re.findall(r"\buio_\w+", expression)}
    assert used <= there
    rest = {"uio_tokens_total", "uio_padded_tokens_total", "uio_batches_total"}
    assert there - used <= rest, "each metric is shown"
    assert all(expression.count("(") == expression.count(")") for expression in asked)
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places), "no panel covers another one"
    assert max(x for x, _ in places) < 24
    assert all(panel["datasource"]["uid"] == "${source}" for panel in panels)
