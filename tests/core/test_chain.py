"""Deferred stages: those that must run before a field is read, and none that need not."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from uio_pipes.core.chain import ANY, Chain

NAMES = st.frozensets(st.sampled_from("abc"), max_size=2) | st.just(ANY)


@dataclass(frozen=True, eq=False)
class Stage:
    """A link that does nothing."""

    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    name: str = "stage"
    of: str = ""

    def plan(self, plan: Any, sample: Any) -> Any:
        return plan

    def apply(self, sample: Any) -> None:
        pass


STAGES = st.lists(st.builds(Stage, NAMES, NAMES), max_size=6)


def stage(reads: str = "", writes: str = "") -> Stage:
    return Stage(frozenset(reads), frozenset(writes))


def links(bits: int) -> set[int]:
    return {j for j in range(bits.bit_length()) if bits >> j & 1}


def meet(a: frozenset[str], b: frozenset[str]) -> bool:
    return bool(a) and bool(b) and ("*" in a or "*" in b or bool(a & b))


def test_samples_share_a_chain_and_stages_are_added_at_its_end() -> None:
    first, second = stage("a", "b"), stage("b", "c")
    chain = Chain((first,))
    assert chain.then(second) is chain.then(second)
    assert chain.then(second).links == (first, second)
    assert chain.links == (first,)
    assert chain.then(stage("b", "c")) is not chain.then(second), "an equal stage is another one"


@given(STAGES, st.sampled_from("abc"))
def test_whatever_a_link_depends_on_runs_before_it(stages: list[Stage], name: str) -> None:
    chain = Chain(tuple(stages))
    for j, bits in enumerate(chain.needs):
        before = {
            i
            for i in range(j)
            if meet(stages[i].writes, stages[j].reads | stages[j].writes) or meet(stages[i].reads, stages[j].writes)
        }
        assert links(bits) == {j}.union(before, *(links(chain.needs[i]) for i in before)), "and nothing else"
    assert links(chain.writers(name)) <= links(chain.users(name))
    direct = {j for j, link in enumerate(stages) if meet(link.writes, frozenset(name))}
    assert links(chain.writers(name)) == direct.union(*(links(chain.needs[j]) for j in direct))


@given(STAGES)
def test_a_chain_that_grew_is_the_chain_made_at_once(stages: list[Stage]) -> None:
    grown = Chain()
    for link in stages:
        grown = grown.then(link)
    whole = Chain(tuple(stages))
    assert (grown.links, grown.needs) == (whole.links, whole.needs)
    assert [grown.users(name) for name in "abc"] == [whole.users(name) for name in "abc"]
