"""What holds for every source, by its row in ``every_source.py``."""

import os
import pickle
import re
from pathlib import Path
from typing import Any

import every_source
import pytest
from contract import Case, check_cuts, digest, record
from corpus import wav_bytes
from every_source import OTHERS, SOURCES, Said, Source, at, decoded, seen, speech, wanted
from fault_server import FaultServer

import uio_pipes as uio
from uio_pipes.tools.reports.simulate import simulate


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    return SOURCES[request.param]


def of(*names: str) -> list[Any]:
    """The rows for which all of these are said, each with its name."""
    return [pytest.param(s, id=n) for n, s in SOURCES.items() if all(getattr(s, name) for name in names)]


def read(source: Source, pipeline: uio.Pipeline, **options: Any) -> tuple[list[Said], uio.Stats]:
    loader = uio.Loader(decoded(source, pipeline), **options)
    return [seen(sample, source.fields) for sample in loader], loader.stats()


def test_each_source_has_a_row() -> None:
    rows = Path(every_source.__file__).read_text()
    made_of_others = ("from_config", "from_corpus", "from_moshi")
    begins = [name for name in uio.__all__ if name.startswith("from_") and name not in made_of_others]
    assert [name for name in begins if f"uio.{name}" not in rows] == []


def test_what_was_written_is_delivered(source: Source, tmp_path: Path) -> None:
    pipeline = source.pipeline(tmp_path, speech())
    found, stats = read(source, pipeline)
    assert found == wanted(speech(), source.fields)
    assert (stats.utterances, stats.failures, stats.skipped) == (every_source.COUNT, 0, {})
    assert "u0" in str(pipeline.peek()) or "文0" in str(pipeline.peek())
    if source.counted:
        assert len(uio.Loader(pipeline.batch(3))) == 3


def _marked(sample: uio.Sample, rng: Any) -> uio.Sample:
    sample["mark"], sample["item"] = int(rng.integers(1 << 40)), sample.origin.item
    return sample


def test_what_is_drawn_with_replacement_is_the_same_in_any_lanes_and_after_a_stop(
    source: Source, tmp_path: Path
) -> None:
    """As many as there are, where utterances are drawn; each draw has random numbers of its own."""
    if source is SOURCES["iterable"]:
        pytest.skip("it lists nothing")
    pipeline = decoded(source, source.pipeline(tmp_path, speech(), resampled=True)).map(_marked)
    recorded = record(Case(pipeline, {"lanes": 2}))
    check_cuts(recorded, range(len(recorded.digests) + 1))
    one, three = (uio.Loader(pipeline, lanes=lanes, seed=5) for lanes in (1, 3))
    epochs = [[(sample["mark"], sample["item"]) for sample in one] for _ in range(4)]
    assert [sorted(epoch) for epoch in epochs] == [sorted((s["mark"], s["item"]) for s in three) for _ in range(4)]
    assert len({mark for epoch in epochs for mark, _ in epoch}) == sum(map(len, epochs))
    if source.counted:
        assert [len(epoch) for epoch in epochs] == [len(one)] * 4
        assert min(len({item for _, item in epoch}) for epoch in epochs) < len(one), "something comes twice"
    assert simulate(pipeline.batch(2), lanes=3, seed=5).utterances == len(epochs[0])


def test_lanes_and_workers_deal_each_utterance_once_in_an_order_of_its_own(source: Source, tmp_path: Path) -> None:
    if source is SOURCES["iterable"]:
        pytest.skip("it has an order of its own")
    pipeline = source.pipeline(tmp_path, speech(), shuffle=True)
    texts = sorted(one["txt"] for one in speech())
    for lanes in (1, 3):
        loader = uio.Loader(decoded(source, pipeline), lanes=lanes, seed=5)
        epochs = [list(loader) for _ in range(6)]
        assert [sorted(seen(s, ["txt"])["txt"] for s in epoch) for epoch in epochs] == [texts] * 6
        orders = [[digest(sample) for sample in epoch] for epoch in epochs]
        assert len(set(map(tuple, orders))) > 1 or not source.counted
    aside = uio.Loader(decoded(source, pipeline), lanes=3, seed=5, num_workers=2)
    assert [digest(sample) for sample in aside] == orders[0]


def test_it_resumes_anywhere_and_counts_what_is_lost_once(source: Source, tmp_path: Path) -> None:
    said = speech()
    lost = next((name for name, reason in source.lacks.items() if reason), None)
    if lost:
        del said[2][lost]
    graph = decoded(source, source.pipeline(tmp_path, said)).shuffle(3).batch(2)
    recorded = record(Case(graph, {"lanes": 2}))
    assert recorded.stats.utterances == len(said) - bool(lost)
    assert sum(recorded.stats.skipped.values()) == bool(lost)
    check_cuts(recorded, range(len(recorded.digests) + 1))


# Damage


LACKING = [pytest.param(s, f, id=f"{n}-{f}") for n, s in SOURCES.items() for f in s.lacks]
BAD = [pytest.param(s, f, id=f"{n}-{f}") for n, s in SOURCES.items() for f in s.bad]


def check_lost(source: Source, pipeline: uio.Pipeline, said: list[Said], lost: int, reason: str) -> None:
    """One utterance is left out under its reason, and a strict run names it."""
    found, stats = read(source, pipeline)
    assert found == wanted([one for number, one in enumerate(said) if number != lost], source.fields)
    assert {name: count for name, count in stats.skipped.items() if name != "no_row"} == {reason: 1}
    if stats.failures:
        with pytest.raises(uio.DataError) as caught:
            read(source, pipeline, failures="raise")
        assert caught.value.reason == reason
        place = rf"'{said[lost].get('key')}'|line {lost + 1}\b|row {lost % 2}|byte [1-9]"
        assert re.search(place, str(caught.value)), caught.value


@pytest.mark.parametrize(("source", "field"), LACKING)
def test_what_an_utterance_lacks_is_counted_or_left_out(source: Source, field: str, tmp_path: Path) -> None:
    said = speech()
    del said[1][field]
    pipeline = source.pipeline(tmp_path, said)
    if source.lacks[field]:
        check_lost(source, pipeline, said, 1, source.lacks[field])
    else:
        assert read(source, pipeline)[0] == wanted(said, source.fields)


@pytest.mark.parametrize(("source", "field"), BAD)
def test_what_cannot_be_read_costs_one_utterance(source: Source, field: str, tmp_path: Path) -> None:
    said = speech()
    said[5][field] = b"\xff\xfe" if field == "txt" else b"this is no audio" * 90
    check_lost(source, source.pipeline(tmp_path, said), said, 5, source.bad[field])


@pytest.mark.parametrize("source", of("alone"))
def test_a_recording_that_is_gone_costs_one_utterance(source: Source, tmp_path: Path) -> None:
    pipeline = source.pipeline(tmp_path, speech())
    next(tmp_path.rglob("u3.wav")).unlink()
    check_lost(source, pipeline, speech(), 3, "no_audio" if source is SOURCES["table"] else "missing_file")


@pytest.mark.parametrize("source", [s for s in of("payload") if "wav" in s.values[0].fields])
def test_audio_that_is_cut_off_during_the_run_is_counted(source: Source, tmp_path: Path) -> None:
    loader = uio.Loader(decoded(source, source.pipeline(tmp_path, speech())))
    samples = iter(loader)
    next(samples)
    for path in tmp_path.glob(source.payload):
        path.write_bytes(path.read_bytes()[:100])
    _ = list(samples)
    assert sum(loader.stats().skipped.values()) >= 1


@pytest.mark.parametrize("source", of("listing"))
def test_what_is_not_there_is_named(source: Source, tmp_path: Path) -> None:
    source.pipeline(tmp_path, speech())
    (tmp_path / source.listing).unlink()
    with pytest.raises(uio.ListError, match=r"no such file|has neither"):
        list(uio.Loader(source.begin(at(tmp_path))))


# States


def rest_of(loader: uio.Loader, state: dict[str, str]) -> list[str]:
    loader.load_state_dict(state)
    return [digest(batch) for batch in loader]


def test_a_state_fits_moved_data_and_no_others(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if source is SOURCES["iterable"]:
        pytest.skip("its items have no fingerprint")

    def loader(folder: str, said: list[Said]) -> uio.Loader:
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        source.write(tmp_path / folder, said, str, {})  # all is named as it lies in the folder
        graph = decoded(source, source.begin(str)).batch(2)
        assert pickle.loads(pickle.dumps(graph)).fingerprint() == graph.fingerprint()
        return uio.Loader(graph)

    first = loader("first", speech())
    batches = iter(first)
    next(batches)
    state, rest = first.state_dict(), [digest(batch) for batch in batches]
    assert rest_of(loader("moved", speech()), state) == rest
    said = speech()
    said[0]["txt"] *= 4000
    changed = [loader("another text", said)]
    if "wav" in source.fields and not source.alone:
        changed.append(
            loader("other audio", [{**speech()[0], "wav": wav_bytes(9, every_source.RATE, (5, 5))}, *speech()[1:]])
        )
    for one in changed:
        with pytest.raises(uio.StateError, match="changed since the state was saved"):
            rest_of(one, state)


# Names


@pytest.mark.parametrize("source", of("named"))
def test_fields_may_have_other_names(source: Source, tmp_path: Path) -> None:
    said = speech()
    if "txt" in source.named:
        del said[1]["txt"]  # which is asked for
    fields = {name: OTHERS[name] for name in source.named}
    named = source.pipeline(tmp_path, said, fields, fields=fields)
    found, stats = read(source, named)
    assert found == wanted([one for one in said if "txt" in one], source.fields)
    assert "missing_text" in stats.skipped or len(said) == len(found)
    assert "who" in str(named)
    fewer = {name: theirs for name, theirs in fields.items() if name != "speaker"}
    assert named.fingerprint() != source.begin(at(tmp_path), fields=fewer).fingerprint()
    recorded = record(Case(decoded(source, named).shuffle(3).batch(2), {"lanes": 2}))
    check_cuts(recorded, range(0, len(recorded.digests) + 1, 2))


@pytest.mark.parametrize("source", of("named"))
def test_fields_are_expressions_over_what_there_is(source: Source, tmp_path: Path) -> None:
    fields = {name: OTHERS[name] for name in source.named}
    made = {**fields, "speaker": "who | upper", "lang": "'en'", "both": "{who}-{who | [1:]}", "none": "whoo or ''"}
    pipeline = source.pipeline(tmp_path, speech(), fields, fields=made)
    found = [(sample["speaker"], sample["lang"], sample["both"]) for sample in uio.Loader(pipeline)]
    assert found == [(f"S{i % 3}", "en", f"s{i % 3}-{i % 3}") for i in range(every_source.COUNT)]
    with pytest.raises(uio.PipelineError, match="there is no filter 'no'"):
        source.begin(at(tmp_path), fields={"speaker": "who | no"})
    if source is not SOURCES["iterable"]:  # whose first item is all that can be looked at
        with pytest.raises(uio.ListError, match=r"asks for 'whoo', .*if who is meant, write fields="):
            list(uio.Loader(source.begin(at(tmp_path), fields={**fields, "what": "whoo"})))


@pytest.mark.parametrize("fields", [{"wav": 3}, 7, {"": "wav"}])
def test_names_that_are_none_are_refused(source: Source, fields: Any) -> None:
    if source is SOURCES["text"]:
        pytest.skip("it has one field")
    with pytest.raises(uio.PipelineError, match="fields"):
        source.begin(str, fields=fields) if source.listing else uio.from_iterable([], fields=fields)


@pytest.mark.parametrize(
    "source", [s for s in of("listing") if s.id.split()[0] not in ("shards", "tar.gz", "index", "text", "table")]
)
def test_a_json_member_is_refused_where_there_are_none(source: Source) -> None:
    with pytest.raises(uio.PipelineError, match="name the field itself, 'who'"):
        source.begin(str, fields={"speaker": "json:who"})


# Lengths


@pytest.mark.parametrize("source", of("planned"))
def test_what_tells_the_lengths_spares_the_audio(source: Source, tmp_path: Path) -> None:
    said = [{**one, "duration": every_source.seconds(one)} for one in speech(20)]
    pipeline = decoded(source, source.pipeline(tmp_path, said))
    for path in tmp_path.glob(source.payload):
        times = path.stat()
        path.write_bytes(bytes(times.st_size))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert simulate(pipeline.sort(9).dynamic_batch(max_frames=500).pad()).utterances == 20


@pytest.mark.parametrize("name", ["index", "touch"])
def test_lanes_get_equal_shares_of_the_samples(name: str, tmp_path: Path) -> None:
    wavs = [wav_bytes(i, every_source.RATE, (0.1, 0.1) if i % 2 else (1.0, 1.0)) for i in range(40)]
    said = [{**one, "wav": wav} for one, wav in zip(speech(40), wavs, strict=True)]
    pipeline, sums = SOURCES[name].pipeline(tmp_path, said, shuffle=True).decode_audio(), []
    for rank in range(2):
        sums.append(sum(s["wav"].shape[1] for s in uio.Loader(pipeline, rank=rank, world_size=2, uneven="join")))
    assert abs(sums[0] - sums[1]) <= every_source.RATE


# Far data


@pytest.mark.parametrize("source", of("listing"))
def test_far_data_are_read_in_spite_of_faults(source: Source, tmp_path: Path, server: FaultServer) -> None:
    source.write(tmp_path, speech(), lambda name: f"{server.url}/{name}", {})
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        server.add(str(path.relative_to(tmp_path)), path.read_bytes(), "503 0", "reset 100")
    found, stats = read(source, source.begin(lambda name: f"{server.url}/{name}"))
    assert found == wanted(speech(), source.fields)
    assert stats.failures == 0
