"""docs/reliability.md names every case of the catalogue, and only tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
CASES = 110


def rows() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0].isdecimal():
            assert int(cells[0]) not in found, line
            found[int(cells[0])] = cells[1:]
    return found


def test_every_case_has_its_row() -> None:
    """1 to 110, each once, with what happens and either a test or the reason why there is none."""
    found = rows()

    assert sorted(found) == list(range(1, CASES + 1))
    for number, (case, happens, tests) in found.items():
        assert case, number
        assert happens, number
        assert bool(tests) != ("Not covered" in happens), number


def test_every_named_test_exists() -> None:
    """A test that was renamed or deleted is renamed or missed here, too."""
    named = {name for _, _, tests in rows().values() for name in re.split(r",\s*", tests) if name}
    assert len(named) > 80
    for name in named:
        file, _, function = name.partition("::")
        path = ROOT / file
        assert path.is_file(), name
        if function:
            assert re.search(rf"^(async )?def {function}\(", path.read_text(), re.MULTILINE), name


def test_every_named_target_exists() -> None:
    """`make …` in the text is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([a-z-]+)", TEXT)) <= targets
