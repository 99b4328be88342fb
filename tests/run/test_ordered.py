"""Results in the order of the list: from any number of ranks, however often they are stopped, one file at the end."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import corpus
import pytest
from command import ranks
from corpus import Corpus

import uio_pipes as uio
from uio_pipes.run.ordered import LANES

SHARDS = "shards"


def pipeline(path: str | Path, source: str = SHARDS) -> uio.Pipeline:
    begin = uio.from_shard_list if source == SHARDS else uio.from_raw_list
    return begin(path).decode_audio().fbank(4).sort(7).batch(3).pad()


def decoded(results: uio.OrderedResults, stop: int | None = None) -> int:
    """Decode at most ``stop`` batches; return how many came."""
    count = 0
    for batch in results:
        count += 1
        assert "__origin__" not in batch
        results.add([f"{key} has {length}" for key, length in zip(batch["keys"], batch["feats_lengths"], strict=True)])
        if count == stop:
            break
    return count


@pytest.fixture
def reference(many_shards: Corpus, tmp_path: Path) -> bytes:
    results = uio.OrderedResults(tmp_path / "reference", pipeline(many_shards.list))
    decoded(results)
    return results.finish().read_bytes()


def test_the_file_has_the_order_of_the_list(many_shards: Corpus, reference: bytes) -> None:
    keys = [line.split()[0] for line in reference.decode().splitlines()]
    assert keys == [sample["key"] for sample in uio.Loader(uio.from_shard_list(many_shards.list))]
    assert sorted(keys) == sorted(many_shards.keys)


def test_stopped_anywhere_and_gone_on_with_other_workers(many_shards: Corpus, tmp_path: Path, reference: bytes) -> None:
    path = tmp_path / "out" / "test.txt"
    lanes = uio.OrderedResults(path, pipeline(many_shards.list)).loader.lanes
    sizes = [len(batch["keys"]) for batch in uio.Loader(pipeline(many_shards.list), lanes=lanes)]
    counts = [decoded(uio.OrderedResults(path, pipeline(many_shards.list)), stop) for stop in (1, 4)]
    assert counts == [1, 4]
    with pytest.raises(uio.PipelineError, match=r"call finish\(\) after the loop"):
        uio.OrderedResults(path, pipeline(many_shards.list)).finish()
    results = uio.OrderedResults(path, pipeline(many_shards.list), num_workers=2)
    rows = list(results.rows())
    assert len({key for key, _ in rows}) == len(rows) == sum(sizes[:5]), "what was added counts"
    assert not results.complete
    decoded(results)
    assert results.finish().read_bytes() == reference
    assert sorted(file.name for file in path.parent.iterdir()) == ["test.txt", "test.txt.json"]
    again = uio.OrderedResults(path, pipeline(many_shards.list))
    assert again.complete
    assert decoded(again) == 0
    assert again.finish().read_bytes() == reference


def test_of_few_shards_no_lane_is_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    few, many = corpus.shards(tmp_path / "few", [2, 2, 2]).list, corpus.raw_list(tmp_path / "many", 20).list
    results = uio.OrderedResults(tmp_path / "a.txt", pipeline(few))
    decoded(results)
    results.finish()
    assert results.loader.lanes == 3
    assert "nothing to deliver" not in caplog.text
    assert uio.OrderedResults(tmp_path / "b.txt", pipeline(many, "raw")).loader.lanes == LANES
    assert uio.OrderedResults(tmp_path / "c.txt", pipeline(few), lanes=8).loader.lanes == 8


def test_failures_are_in_a_file_beside_it(raw_corpus: Corpus, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in Path(raw_corpus.list).read_text().splitlines()]
    lines[1]["wav"] = str(tmp_path / "missing.wav")
    path = tmp_path / "data.list"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = uio.OrderedResults(tmp_path / "hyp", pipeline(path, "raw"))
    decoded(results)
    keys = [line.split()[0] for line in results.finish().read_text().splitlines()]
    assert keys == [line["key"] for line in lines if line is not lines[1]]
    (failure,) = (tmp_path / "hyp.failed").read_text().splitlines()
    assert "missing_file" in failure
    assert json.loads((tmp_path / "hyp.json").read_text())["failures"] == 1


def test_what_is_no_text_is_written_as_json(raw_corpus: Corpus, tmp_path: Path) -> None:
    results = uio.OrderedResults(tmp_path / "hyp", pipeline(raw_corpus.list, "raw"))
    for batch in results:
        results.add([{"score": 1.5, "text": "a\nb"} for _ in batch["keys"]])
    assert all(line.endswith(' {"score": 1.5, "text": "a\\nb"}') for line in results.finish().read_text().splitlines())


def test_results_of_something_else_are_not_mixed_in(many_shards: Corpus, tmp_path: Path) -> None:
    path, graph = tmp_path / "hyp", pipeline(many_shards.list)
    decoded(uio.OrderedResults(path, graph, about={"model": "a"}), 2)
    with pytest.raises(
        uio.StateError, match=r"model was 'a', now 'b'. Decode as before, or begin again with Ord.*restart"
    ):
        uio.OrderedResults(path, graph, about={"model": "b"})
    results = uio.OrderedResults(path, graph, about={"model": "b"}, on_change="restart")
    assert decoded(results) > 2
    results.finish()
    with pytest.raises(uio.StateError, match=r"belongs to another decoding: "):
        uio.OrderedResults(path, graph, about={"model": "c"})


def test_wrong_use(many_shards: Corpus, tmp_path: Path) -> None:
    graph = pipeline(many_shards.list)
    for wrong, said in [
        ({"uneven": "stop"}, r"uneven cannot be set for decoding"),
        ({"on_change": "adopt"}, r"on_change must be 'error' or 'restart', not 'adopt'"),
        ({"rank": 0, "world_size": 2}, r"ranks must be able to wait for each other"),
    ]:
        with pytest.raises(uio.PipelineError, match=said):
            uio.OrderedResults(tmp_path / "x", graph, **wrong)
    with pytest.raises(uio.PipelineError, match=r"must end with \.pad\(\)"):
        uio.OrderedResults(tmp_path / "x", uio.from_shard_list(many_shards.list))
    with pytest.raises(uio.PipelineError, match=r"leave 'keys' as it is"):
        uio.OrderedResults(tmp_path / "x", uio.from_shard_list(many_shards.list).batch(2).pad(names={"keys": "ids"}))
    results = uio.OrderedResults(tmp_path / "x", graph)
    next(iter(results))
    with pytest.raises(uio.PipelineError, match=r"1 results for 3 utterances: add takes one for each"):
        results.add(["one"])
    with pytest.raises(uio.PipelineError, match=r"call add\(results\)"):
        list(uio.OrderedResults(tmp_path / "x", graph))


# Several ranks


def main(settings: dict[str, Any]) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    results = uio.OrderedResults(settings["path"], pipeline(settings["list"]), num_workers=settings["workers"])
    decoded(results, settings["stop"])
    if settings["stop"] is not None:
        os._exit(9)
    results.finish()
    dist.destroy_process_group()


def test_three_ranks_die_and_two_go_on(many_shards: Corpus, tmp_path: Path, reference: bytes) -> None:
    path = tmp_path / "hyp"
    given = {"path": str(path), "list": str(many_shards.list)}
    assert ranks(3, __file__, json.dumps({**given, "stop": 3, "workers": 0})).returncode
    assert not path.exists()
    done = ranks(2, __file__, json.dumps({**given, "stop": None, "workers": 1}))
    assert done.returncode == 0, done.stderr
    assert path.read_bytes() == reference


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
