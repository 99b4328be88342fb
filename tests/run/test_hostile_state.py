"""States as an adversary, or a broken disk, would make them: a message or the right thing, never a crash or a hang."""

import json
from typing import Any

import pytest
from corpus import Corpus
from helpers_bad import keys, replaced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from indexed_corpus import indexed

import uio_pipes as uio
from uio_pipes.base.errors import UioError

NASTY: list[Any] = [None, True, -1, 0, 3, 10**9, 10**30, 1.5, "", "x", "H!!!", [], [1], {}, {"source": 3}, [[]] * 3]


@pytest.fixture(scope="module")
def graphs(plain_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, uio.Pipeline]:
    folder = tmp_path_factory.mktemp("i")
    indexed(plain_corpus.list, folder)
    sources = {
        "tar": uio.from_shard_list(plain_corpus.list, shuffle=True),
        "index": uio.from_tar_index(plain_corpus.list, shuffle=True, indexes=str(folder)),
    }
    return {
        name: source.decode_audio().shuffle(6).sort(4).dynamic_batch(max_frames=300).pad()
        for name, source in sources.items()
    }


@pytest.fixture(scope="module")
def states(graphs: dict[str, uio.Pipeline]) -> dict[str, dict[str, str]]:
    out = {}
    for name, graph in graphs.items():
        loader = uio.Loader(graph, lanes=2)
        for _, _batch in zip(range(4), loader, strict=False):
            pass
        out[name] = loader.state_dict()
    return out


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a nested value; each can be replaced."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, each in inner for place in places(each, (*path, name)))]


def go_on(graph: uio.Pipeline, state: dict[str, Any]) -> list[str] | None:
    """Keys of what comes after ``state``; None if it is rejected with a message that helps."""
    loader = uio.Loader(graph, lanes=2)
    try:
        loader.load_state_dict(state)
        return keys(loader)
    except UioError:
        return None


@pytest.mark.parametrize("name", ["tar", "index"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_forged_state_is_rejected_or_harmless(
    graphs: dict[str, uio.Pipeline], states: dict[str, dict[str, str]], name: str, data: st.DataObject
) -> None:
    state = dict(states[name])
    key = data.draw(st.sampled_from(sorted(state)))
    parsed = json.loads(state[key])
    place = data.draw(st.sampled_from(places(parsed)))
    state[key] = json.dumps(replaced(parsed, place, data.draw(st.sampled_from(NASTY))))
    go_on(graphs[name], state)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_flipped_bytes(graphs: dict[str, uio.Pipeline], states: dict[str, dict[str, str]], data: st.DataObject) -> None:
    state = dict(states["tar"])
    key = data.draw(st.sampled_from(sorted(state)))
    text = bytearray(state[key].encode())
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(32, 126))
    go_on(graphs["tar"], state | {key: text.decode("utf-8", "replace")})


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, '{"epoch": ' + "9" * 5000 + "}", "\x00", "null", "3", '"x"', "[]", "{}"],
    ids=["deep list", "deep dict", "huge int", "NUL", "null", "number", "text", "list", "empty"],
)
@pytest.mark.parametrize("key", ["meta", "lane_000000"])
def test_what_is_no_state_is_named(
    graphs: dict[str, uio.Pipeline], states: dict[str, dict[str, str]], key: str, text: str
) -> None:
    with pytest.raises(uio.StateError, match=f"{key}|schema"):
        uio.Loader(graphs["tar"], lanes=2).load_state_dict({**states["tar"], key: text})


def test_other_things_than_states(graphs: dict[str, uio.Pipeline]) -> None:
    for thing in ({}, {"meta": b"x"}, {"meta": 3}, {3: "x"}, [], None, "x"):
        with pytest.raises(uio.StateError):
            uio.Loader(graphs["tar"]).load_state_dict(thing)  # type: ignore[arg-type]


def test_a_position_behind_the_end_is_no_silent_end(
    graphs: dict[str, uio.Pipeline], states: dict[str, dict[str, str]]
) -> None:
    parsed = json.loads(states["index"]["lane_000000"])
    found = [p for p in places(parsed) if p and p[-1] == "position"]
    state = states["index"] | {"lane_000000": json.dumps(replaced(parsed, found[-1], 10**6))}
    loader = uio.Loader(graphs["index"], lanes=2)
    loader.load_state_dict(state)
    with pytest.raises(uio.StateError, match="position is 1000000, but must be a whole number from 0 to 25"):
        list(loader)


def test_a_message_on_a_forged_state_fits_a_screen(graphs: dict[str, uio.Pipeline], states: Any) -> None:
    state = dict(states["tar"])
    meta = json.loads(state["meta"])
    for forged in ({"epoch": "x" * 10**6}, {"graph": ["y" * 10**6]}, {"seed": 10**299}):
        with pytest.raises(uio.StateError) as raised:
            uio.Loader(graphs["tar"], lanes=2).load_state_dict(state | {"meta": json.dumps(meta | forged)})
        assert len(str(raised.value)) < 2200
        assert str(raised.value).endswith(("use an older checkpoint", 'Loader(on_change="restart")'))
