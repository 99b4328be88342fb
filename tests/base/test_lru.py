"""A cache bounded in bytes."""

from uio_pipes.base.hashing import Lru


def test_least_recently_used_goes_first_and_the_bound_holds() -> None:
    cache, made = Lru(10), []

    def get(key: str, size: int) -> str:
        def make() -> str:
            made.append(key)
            return key.upper()

        return cache.get(key, make, lambda _: size)

    assert [get("a", 4), get("b", 4), get("a", 4)] == ["A", "B", "A"]
    assert made == ["a", "b"]
    get("c", 5)  # b was used longest ago
    assert ("a" in cache, "b" in cache, "c" in cache) == (True, False, True)
    assert cache.held == 9
    assert get("huge", 11) == "HUGE"
    assert "huge" not in cache
    assert cache.held == 9
    get("b", 10)
    assert ("a" in cache, "b" in cache, "c" in cache) == (False, True, False)


def test_a_limit_of_0_keeps_nothing() -> None:
    cache = Lru(0)
    values = iter(range(3))
    assert [cache.get("a", lambda: next(values), lambda _: 8) for _ in range(3)] == [0, 1, 2]
