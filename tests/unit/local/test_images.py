import sys
import threading
from pathlib import Path

import pytest

from frontier_local import environments
from frontier_local.environments import PythonRecipe, ensure_environment
from frontier_local.errors import ImageError
from frontier_local.images import ImageMap, ResolvedImage, normalized

SCRIPTS = str(Path(sys.executable).parent)
# Stands for uv: `venv` makes the directory, `pip install` notes its arguments in it.
UV = """#!/bin/sh
echo "$@" >> "$UV_CALLS"
case "$1" in
venv) for last; do :; done; mkdir -p "$last/bin"; echo "made $last" ;;
pip) if [ -n "$UV_FAILS" ]; then echo no such package >&2; exit 2; fi ;;
esac
"""


def write_map(tmp_path, text):
    path = tmp_path / "images.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def uv_calls(tmp_path, monkeypatch):
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(UV)
    uv.chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    monkeypatch.setenv("UV_CALLS", str(calls))
    return calls


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("busybox", "busybox:latest"),
        ("docker.io/library/busybox:1.36", "busybox:1.36"),
        ("registry.example.org:5000/team/engine", "registry.example.org:5000/team/engine:latest"),
        ("vllm/vllm-openai:v0.33.0@sha256:abc", "vllm/vllm-openai:v0.33.0"),
        ("vllm/vllm-openai@sha256:abc", "vllm/vllm-openai:latest"),
    ],
)
def test_names_are_matched_without_registry_and_digest_and_with_a_tag(image, want):
    assert normalized(image) == want


def test_the_default_map_runs_the_simulated_engine_for_vllm():
    want = ResolvedImage(entrypoint=(sys.executable, "-m", "frontier_local.engine"))
    assert ImageMap.load(None).resolve("vllm/vllm-openai:v0.33.0") == want


@pytest.mark.parametrize("image", ["frontier-operator:dev", "registry.example.org/team/frontier-operator:1.0"])
def test_the_operators_image_finds_the_projects_commands(image):
    assert ImageMap.load(None).resolve(image) == ResolvedImage(path=(SCRIPTS,))


@pytest.mark.parametrize("image", ["busybox", "python:3.12"])
def test_plain_images_are_the_machine_itself(image):
    assert ImageMap.load(None).resolve(image) == ResolvedImage()


@pytest.mark.parametrize("image", ["nginx:1.29", "vllm/vllm-openai-nightly:x", "mybusybox:1"])
def test_an_image_that_nothing_matches_does_not_exist(image):
    assert ImageMap.load(None).resolve(image) is None


def test_entries_of_a_file_come_before_the_default_ones(tmp_path):
    path = write_map(tmp_path, "images: [{match: 'busybox:*', environment: {A: '{python}'}, entrypoint: [sh, -c]}]")
    images = ImageMap.load(path)
    assert images.resolve("busybox") == ResolvedImage(("sh", "-c"), {"A": sys.executable})
    assert images.resolve("python:3") == ResolvedImage()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("images: [{entrypoint: [sh]}]", "images.0.match: Field required"),
        ("images: [{match: x, command: [sh]}]", "images.0.command: Extra inputs"),
        ("images: [{match: x, environment: {A: 1}}]", "images.0.environment.A: Input should be a valid string"),
        ("images: [{match: x, python: {requirements: []}}]", "images.0.python.requirements"),
        ("pictures: []", "images: Field required"),
        ("[", "cannot be read"),
        ("", "the file"),
    ],
)
def test_a_malformed_map_names_the_field(tmp_path, text, want):
    with pytest.raises(ImageError) as caught:
        ImageMap.load(write_map(tmp_path, text))
    assert want in str(caught.value)
    assert "images.yaml" in str(caught.value)


def test_a_missing_map_is_named(tmp_path):
    with pytest.raises(ImageError, match=r"absent\.yaml cannot be read"):
        ImageMap.load(tmp_path / "absent.yaml")


def test_an_image_with_requirements_gets_an_interpreter_of_its_own_once(tmp_path, uv_calls):
    python = "{requirements: [a==1], overrides: [b==2]}"
    text = f"images: [{{match: 'vllm/*', entrypoint: ['{{python}}'], path: ['{{scripts}}'], python: {python}}}]"
    lines = []
    images = ImageMap.load(write_map(tmp_path, text), lines.append, tmp_path / "cache")
    resolved = images.resolve("vllm/vllm-openai:v1")
    want = environments.environment_directory(PythonRecipe(("a==1",), ("b==2",)), tmp_path / "cache") / "bin"
    assert resolved == ResolvedImage((str(want / "python"),), {}, (str(want),))
    assert images.resolve("vllm/vllm-openai:v2") == resolved
    venv, install = uv_calls.read_text().splitlines()
    assert venv.startswith("venv ")
    assert "pip install --python" in install
    assert " a==1 --override " in install
    assert Path(install.split()[-1]).read_text() == "b==2\n"
    assert f"made {want.parent}" in lines


def test_recipes_that_differ_get_different_environments(tmp_path):
    recipes = [PythonRecipe(("a==1",)), PythonRecipe(("a==2",)), PythonRecipe(("a==1",), ("b==1",))]
    assert len({environments.environment_directory(recipe, tmp_path) for recipe in recipes}) == 3


def test_a_failed_environment_says_why_and_is_tried_again(tmp_path, uv_calls, monkeypatch):
    monkeypatch.setenv("UV_FAILS", "1")
    recipe = PythonRecipe(("nonsense",))
    with pytest.raises(ImageError, match=r"(?s)exit code 2.*no such package"):
        ensure_environment(recipe, lambda _line: None, tmp_path)
    monkeypatch.setenv("UV_FAILS", "")
    assert ensure_environment(recipe, lambda _line: None, tmp_path).parent.is_dir()


def test_two_callers_at_once_make_one_environment(tmp_path, uv_calls):
    recipe = PythonRecipe(("a",))
    callers = [
        threading.Thread(target=ensure_environment, args=(recipe, lambda _line: None, tmp_path)) for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert len(uv_calls.read_text().splitlines()) == 2


def test_without_uv_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ImageError, match="pip install uv"):
        ensure_environment(PythonRecipe(("a",)), lambda _line: None, tmp_path)
