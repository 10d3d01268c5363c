import ast
from pathlib import Path

import pytest

import frontier_tuner


def imported_for_types():
    tree = ast.parse(Path(frontier_tuner.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.asname or alias.name: (node.module, alias.name) for node in block.body for alias in node.names}


def test_every_public_name_is_the_one_that_type_checkers_see():
    declared = imported_for_types()
    assert set(declared) == set(frontier_tuner.__all__)
    for name, (module, original) in declared.items():
        home = __import__(module, fromlist=[original])
        assert getattr(frontier_tuner, name) is getattr(home, original)


def test_the_list_of_public_names_has_no_repetition_and_shows_in_dir():
    assert len(frontier_tuner.__all__) == len(set(frontier_tuner.__all__))
    assert set(frontier_tuner.__all__) <= set(dir(frontier_tuner))


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Oracle'"):
        _ = frontier_tuner.Oracle
