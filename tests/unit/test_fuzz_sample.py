"""A sample of `make fuzz` for every run: each decoder, a few hundred nearly real inputs."""

import pytest

from tests.fuzz.mutator import BYTES_MAX
from tests.fuzz.run import blocks, make, run_block
from tests.fuzz.targets import TARGETS

SEED, CASES = 20261118, 400


@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_sample_raises_nothing(name: str) -> None:
    """No decoder raises or believes a forgery, and the seeds themselves are good input."""
    target = TARGETS[name]
    for case in range(CASES):
        target.run(make(target, SEED, case))

    assert all(target.run(seed) for seed in target.seeds)


def test_fuzz_same_seed_gives_the_same_input() -> None:
    """A finding can be shown again, and no input is larger than a command may be."""
    target = TARGETS["structured command"]
    inputs = [make(target, SEED, case) for case in range(200)]

    assert inputs == [make(target, SEED, case) for case in range(200)]
    assert len(set(inputs)) > 190
    assert max(map(len, inputs)) <= BYTES_MAX


def test_fuzz_run_finds_a_decoder_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner sees what it is there to see, with the words to show it again."""

    def broken(raw: bytes) -> bool:
        return raw[10_000_000] == 0

    target = TARGETS["topic"]
    monkeypatch.setitem(
        TARGETS, "topic", type(target)(target.seeds, target.bombs, broken, target.share)
    )

    tally = run_block("topic", SEED, 0, 3)

    assert len(tally.findings) == 3
    assert f"'topic' --seed {SEED} --case 0" in tally.findings[0]
    assert "IndexError" in tally.findings[0]


def test_fuzz_shares_make_at_least_the_asked_number() -> None:
    """A million means a million."""
    assert sum(target.share for target in TARGETS.values()) == 100
    assert sum(count for *_, count in blocks(1_000_000)) >= 1_000_000
