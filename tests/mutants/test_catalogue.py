"""The list of seeded faults stays true: every one still applies, and names a test that exists."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Mutant

MUTANTS_MIN = 40


def test_there_are_enough_and_each_has_its_own_name() -> None:
    """At least forty faults; a name is said once."""
    names = Counter(mutant.name for mutant in MUTANTS)

    assert len(names) >= MUTANTS_MIN
    assert max(names.values()) == 1


@pytest.mark.parametrize("fault", MUTANTS, ids=lambda fault: fault.name)
def test_fault_still_applies_and_its_test_exists(fault: Mutant) -> None:
    """Every piece of text stands in its file exactly once, and Python is still Python."""
    texts: dict[str, str] = {}
    for edit in fault.edits:
        text = texts.get(edit.file) or (ROOT / "bridge" / edit.file).read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, edit
        texts[edit.file] = text.replace(edit.old, edit.new)
    for name, text in texts.items():
        if name.endswith(".py"):
            ast.parse(text)
    file, _, function = fault.killer.partition("::")

    assert f"def {function}(" in Path(ROOT, file).read_text(encoding="utf-8")
