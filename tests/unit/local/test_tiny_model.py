import ast
import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from frontier_local import tiny_model
from frontier_local.tiny_model import RECIPE_FILE, Recipe, corpus, digest, is_made, main, make

CONTRADICTIONS = [
    (Recipe(experts=1), "experts is 1: use 0 for a dense model, or 2 and more"),
    (Recipe(heads=24, kv_heads=8), "hidden is 512 and heads is 24: hidden must be a multiple of heads"),
    (Recipe(kv_heads=3), "heads is 8 and kv-heads is 3: heads must be a multiple of kv-heads"),
    (Recipe(vocabulary=100), "vocabulary is 100: use at least 259, for every byte and special token"),
]


def finished(directory: Path, recipe: Recipe) -> Path:
    directory.mkdir()
    (directory / RECIPE_FILE).write_text(json.dumps(asdict(recipe)))
    return directory


def test_its_imports_are_the_standard_librarys_so_that_any_interpreter_can_run_it_by_its_path():
    tree = ast.parse(Path(tiny_model.__file__).read_text())
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert {str(name).split(".")[0] for name in names} <= sys.stdlib_module_names


def test_the_corpus_is_the_same_every_time():
    first, second = list(corpus()), list(corpus())
    assert first == second
    assert len(first) > 50


@pytest.mark.parametrize(("recipe", "want_problem"), CONTRADICTIONS)
def test_a_recipe_that_contradicts_itself_is_refused(recipe, want_problem, tmp_path):
    with pytest.raises(ValueError, match=re.escape(want_problem)) as refused:
        make(tmp_path / "model", recipe)
    assert str(refused.value) == want_problem
    assert not (tmp_path / "model").exists()


def test_the_command_names_the_field_that_it_refuses(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--output", str(tmp_path / "model"), "--kv-heads", "3"])
    assert ended.value.code == 2
    assert "kv-heads is 3" in capsys.readouterr().err


def test_a_finished_model_is_kept(tmp_path):
    directory = finished(tmp_path / "model", Recipe())
    assert make(directory, Recipe()) is False


def test_a_model_of_another_recipe_is_not_taken_for_the_wanted_one(tmp_path):
    directory = finished(tmp_path / "model", Recipe())
    assert is_made(directory, Recipe())
    assert not is_made(directory, replace(Recipe(), seed=2))
    assert not is_made(tmp_path / "elsewhere", Recipe())


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(FileExistsError, match="was not made by this script"):
        make(tmp_path, Recipe())
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_the_digest_covers_names_and_contents(tmp_path):
    (tmp_path / "a").write_text("1")
    before = digest(tmp_path)
    assert digest(tmp_path) == before
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = digest(tmp_path)
    (tmp_path / "b").write_text("2")
    assert len({before, renamed, digest(tmp_path)}) == 3
