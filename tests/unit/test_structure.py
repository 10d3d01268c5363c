import ast
import operator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("operator", "tuner", "local")
MODULES = sorted(path for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py"))
MAX_FUNCTION_LINES = 50
MAX_MODULE_LINES = 400


def functions(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, body_lines(node)


def body_lines(node):
    """Count the lines of a function without its signature and docstring."""
    first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
    return node.body[-1].end_lineno - first.lineno + 1


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_is_no_package(root):
    """An `__init__.py` in `operator/` would hide the standard library's module of that name."""
    assert not any((ROOT / root / name).exists() for name in ("__init__.py", "operator.py", "conftest.py"))


def test_the_standard_librarys_operator_is_the_one_that_is_imported():
    assert operator.add(1, 2) == 3


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_stay_within_a_readable_size(path):
    assert len(path.read_text().splitlines()) <= MAX_MODULE_LINES
    assert {name: lines for name, lines in functions(path) if lines > MAX_FUNCTION_LINES} == {}
