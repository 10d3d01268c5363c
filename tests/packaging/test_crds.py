import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from frontier_operator.api import names
from frontier_operator.api.v1alpha1 import (
    InferenceDeploymentSpec,
    InferenceDeploymentStatus,
    TuningTrialSpec,
    TuningTrialStatus,
    parse,
)
from frontier_tuner.spec import StudySpec

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
FILES = sorted((ROOT / "crds").glob("*.yaml"))
ONLY_IN_MODELS = {"spec.workload.trace.path"}  # for the frontier command, which reads files and no ConfigMaps
FREE_FORM = {"spec.engine.podTemplate", "spec.search.parameters[].value", "spec.search.parameters[].values[]"}
SHAPED_BY_KUBERNETES = {"spec.engine.env[].valueFrom"}  # the model passes it on as it is


def load(plural):
    return yaml.safe_load((ROOT / "crds" / f"{plural}.yaml").read_text())


def schema_of(plural):
    return load(plural)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def resolved(schema, definitions):
    """Return a pydantic schema without references and without its null alternative."""
    if "$ref" in schema:
        return resolved(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    alternatives = [each for each in schema.get("anyOf", []) if each.get("type") != "null"]
    if alternatives and all(each.get("type") in {"string", "number"} for each in alternatives):
        return {"type": "string"}
    return resolved(alternatives[0], definitions) if alternatives else schema


def differences(crd, model, definitions, path):
    model = resolved(model, definitions)
    if path in FREE_FORM:
        assert crd["x-kubernetes-preserve-unknown-fields"] is True
        return
    if path in SHAPED_BY_KUBERNETES:
        return
    wanted = set(model["enum"]) if "enum" in model else {model["const"]} if "const" in model else None
    if wanted is not None and wanted != set(crd.get("enum", ())):
        yield f"{path}: the model takes {sorted(wanted)}, the CRD {crd.get('enum')}"
    if model.get("type") != crd["type"]:
        yield f"{path}: the model has type {model.get('type')}, the CRD {crd['type']}"
    elif crd["type"] == "array":
        yield from differences(crd["items"], model["items"], definitions, f"{path}[]")
    elif crd["type"] == "object" and "properties" in crd:
        in_model, in_crd = model.get("properties", {}), crd["properties"]
        for name in sorted(in_model.keys() ^ in_crd.keys()):
            if f"{path}.{name}" not in ONLY_IN_MODELS:
                yield f"{path}.{name}: only in the {'model' if name in in_model else 'CRD'}"
        for name in sorted(in_model.keys() & in_crd.keys()):
            yield from differences(in_crd[name], in_model[name], definitions, f"{path}.{name}")


@pytest.mark.parametrize(
    ("plural", "part", "model"),
    [
        ("inferencedeployments", "spec", InferenceDeploymentSpec),
        ("inferencedeployments", "status", InferenceDeploymentStatus),
        ("tuningtrials", "spec", TuningTrialSpec),
        ("tuningtrials", "status", TuningTrialStatus),
    ],
)
def test_models_and_crds_have_the_same_fields_types_and_enums(plural, part, model):
    schema = model.model_json_schema(by_alias=True)
    crd = schema_of(plural)["properties"][part]
    assert list(differences(crd, schema, schema.get("$defs", {}), part)) == []


def walk(schema, path):
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from walk(each, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")


@pytest.mark.parametrize("plural", ["inferencedeployments", "tuningtrials"])
def test_the_conventions_of_the_api_hold(plural):
    crd = load(plural)
    assert crd["spec"]["group"] == names.GROUP
    version = crd["spec"]["versions"][0]
    assert version["name"] == names.VERSION
    assert version["subresources"] == {"status": {}}
    for path, schema in walk(schema_of(plural), ""):
        assert schema.get("type") != "number", f"{path} is a float"
        assert "default" not in schema, f"{path} has a default that version control would see as a difference"
        assert schema.get("description") or path.endswith(("[]", "metadata")) or not path, f"{path} is not described"
        if schema.get("type") == "array":
            assert "maxItems" in schema, f"{path} is unbounded"
        for rule in schema.get("x-kubernetes-validations", ()):
            assert rule["message"], f"{path} has a rule that says nothing"
    conditions = schema_of(plural)["properties"]["status"]["properties"]["conditions"]
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_lists_of_named_things_are_keyed_by_name():
    for path, schema in walk(schema_of("inferencedeployments")["properties"]["spec"], "spec"):
        if "name" in schema.get("items", {}).get("properties", {}):
            assert schema.get("x-kubernetes-list-map-keys") == ["name"], path


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_crd_fits_the_annotation_of_client_side_apply(file):
    assert len(json.dumps(yaml.safe_load(file.read_text()))) < 200_000


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_field_is_a_boolean_to_readers_of_older_yaml(file):
    assert re.findall(r"^ *-? *(?:y|n|yes|no|on|off):", file.read_text(), re.MULTILINE | re.IGNORECASE) == []


def test_the_print_columns_are_those_of_the_api():
    def columns(priority):
        return [each["name"] for each in listed if each.get("priority", 0) == priority]

    listed = load("inferencedeployments")["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns(0) == ["Ready", "Target", "Cost/Mtok", "TTFT", "ITL", "Trials", "Age"]
    assert columns(1) == ["Variant", "Parallelism", "Batch", "Reason"]


def test_names_are_those_of_the_api():
    accepted = load("inferencedeployments")["spec"]["names"]
    assert accepted["shortNames"] == ["infd", "infdeploy"]
    assert accepted["categories"] == ["all", "inference"]
    assert "trial" in load("tuningtrials")["spec"]["names"]["shortNames"]


def test_copies_are_in_step():
    subprocess.run([ROOT / "scripts/sync-crds", "--check"], check=True)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_parses(file):
    assert isinstance(parse(yaml.safe_load(file.read_text())), StudySpec)


@pytest.mark.parametrize(
    ("plural", "page"), [("inferencedeployments", "inferencedeployment"), ("tuningtrials", "tuningtrial")]
)
def test_every_field_is_on_its_reference_page_as_the_crd_describes_it(plural, page):
    text = (ROOT / "docs/reference" / f"{page}.md").read_text()
    for part in ("spec", "status"):
        for path, schema in walk(schema_of(plural)["properties"][part], part):
            if path != part and not path.endswith("[]"):
                assert f"| `{path}` |" in text, path
                assert schema["description"] in text, path
