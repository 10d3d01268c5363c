import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from frontier_operator.api import names
from frontier_operator.settings import Settings

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/frontier-operator"
KUBECTL = shutil.which("kubectl", path=str(Path(sys.executable).parent)) or "kubectl"
HELM = shutil.which("helm")


def kustomize(path):
    rendered = subprocess.run(
        [KUBECTL, "kustomize", ROOT / "manifests" / path], check=True, capture_output=True, text=True
    )
    return [document for document in yaml.safe_load_all(rendered.stdout) if document]


def helm(*arguments):
    if HELM is None:
        pytest.skip("helm is not on the PATH")
    command = [HELM, "template", "frontier-operator", CHART, "--namespace", "frontier-system", *arguments]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True)
    return [document for document in yaml.safe_load_all(rendered.stdout) if document]


def of(documents, kind):
    return next(document for document in documents if document["kind"] == kind)


def granted(rules):
    """Return the rules as a set of (group, resource, verb)."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def template_rules(name):
    """Return the rules of a helper of the chart; it has no variables, so it is YAML as it stands."""
    text = (CHART / "templates/_helpers.tpl").read_text()
    match = re.search(r'\{\{- define "frontier-operator\.' + name + r'" -\}\}\n(.*?)\{\{- end -\}\}', text, re.DOTALL)
    return yaml.safe_load(match[1])


def chart_deployment_without_helm():
    """Return the chart's container as far as it has no variables."""
    lines = (CHART / "templates/deployment.yaml").read_text().splitlines()
    plain = [re.sub(r"\{\{.*\}\}", "x", line) for line in lines if not re.match(r"\s*\{\{", line)]
    return yaml.safe_load("\n".join(plain))


def container(deployment):
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return only


def test_the_default_overlay_has_everything_and_no_more():
    assert sorted(document["kind"] for document in kustomize("overlays/default")) == [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "CustomResourceDefinition",
        "Deployment",
        "Namespace",
        "ServiceAccount",
    ]


def test_the_namespaced_overlay_asks_for_nothing_cluster_wide():
    documents = kustomize("overlays/namespaced")
    assert sorted(document["kind"] for document in documents) == ["Deployment", "Role", "RoleBinding", "ServiceAccount"]
    assert {document["metadata"]["namespace"] for document in documents} == {"frontier-system"}
    variables = {each["name"]: each for each in container(of(documents, "Deployment"))["env"]}
    assert variables["FRONTIER_NAMESPACES"] == {
        "name": "FRONTIER_NAMESPACES",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }


def test_bindings_name_the_account_and_the_role_that_exist():
    for overlay, prefix in (("overlays/default", "Cluster"), ("overlays/namespaced", "")):
        documents = kustomize(overlay)
        binding, account = of(documents, f"{prefix}RoleBinding"), of(documents, "ServiceAccount")
        assert binding["roleRef"]["name"] == of(documents, f"{prefix}Role")["metadata"]["name"]
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "frontier-system"}
        ]
        pod = of(documents, "Deployment")["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == account["metadata"]["name"]


def test_chart_and_manifests_grant_the_same():
    namespaced = granted(template_rules("namespacedRules"))
    cluster = namespaced | granted(template_rules("clusterRules"))
    assert granted(of(kustomize("overlays/namespaced"), "Role")["rules"]) == namespaced
    assert granted(of(kustomize("overlays/default"), "ClusterRole")["rules"]) == cluster


def test_no_right_reaches_for_secrets_or_for_everything():
    for group, resource, verb in granted(of(kustomize("overlays/default"), "ClusterRole")["rules"]):
        assert "*" not in {group, resource, verb}
        assert resource != "secrets"
        assert verb not in {"impersonate", "bind", "escalate", "deletecollection"}
    assert ("frontier-operator.dev", "inferencedeployments", "update") not in granted(template_rules("namespacedRules"))


def test_the_documented_rights_are_those_granted():
    page = (ROOT / "docs/reference/installation.md").read_text()
    documented = set()
    for groups, resources, verbs in re.findall(
        r"^\| (.+?) \| (.+?) \| (get.*|patch.*|create.*|list.*|update.*) \|$", page, re.MULTILINE
    ):
        for group in groups.removesuffix(", cluster-wide only").split(", "):
            for resource in resources.split(", "):
                documented |= {(group.strip("`").replace("core", ""), resource, verb) for verb in verbs.split(", ")}
    assert documented == granted(of(kustomize("overlays/default"), "ClusterRole")["rules"])


def test_chart_and_manifests_run_the_same_process():
    chart, manifest = chart_deployment_without_helm(), of(kustomize("overlays/default"), "Deployment")
    left, right = container(chart), container(manifest)
    for name in ("command", "args", "ports", "livenessProbe", "readinessProbe", "securityContext", "volumeMounts"):
        assert left[name] == right[name], name
    assert [each["name"] for each in left["env"]] == [each["name"] for each in right["env"]]
    for name in ("securityContext", "volumes"):
        assert chart["spec"]["template"]["spec"][name] == manifest["spec"]["template"]["spec"][name]
    assert chart["spec"]["strategy"] == manifest["spec"]["strategy"] == {"type": "Recreate"}
    assert chart["spec"]["replicas"] == manifest["spec"]["replicas"] == 1


def test_the_pod_is_admitted_under_the_restricted_standard():
    pod = of(kustomize("overlays/default"), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = container({"spec": {"template": {"spec": pod}}})["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not any("hostPath" in volume for volume in pod["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_the_defaults_satisfy_the_schema_of_values():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    assert values.keys() <= schema["properties"].keys()
    for bad in ({"namespaces": ["Not_One"]}, {"prometheus": {"url": "prometheus:9090"}}, {"replicas": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values, **bad}, schema)


def test_templates_use_only_values_that_exist():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for template in (CHART / "templates").iterdir():
        for path in re.findall(r"\.Values((?:\.\w+)+)", template.read_text()):
            found = values
            for name in path.strip(".").split("."):
                assert name in found, f"{template.name} uses .Values{path}"
                found = found[name]


def test_versions_agree():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    image = container(of(kustomize("overlays/default"), "Deployment"))
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert chart["version"] == chart["appVersion"] == version
    assert image["image"] == f"frontier-operator:{version}"
    assert {"name": "FRONTIER_LOAD_IMAGE", "value": image["image"]} in image["env"]


def test_the_image_runs_as_nobody_from_pinned_parts():
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("USER")] == ["65532:65532"]
    assert all(":" in line.split()[1] and "latest" not in line for line in lines if line.startswith("FROM"))
    assert any("uv==" in line for line in lines)
    assert any("--frozen" in line for line in lines)


def test_what_is_scraped_is_what_the_operator_labels():
    text = (ROOT / "manifests/components/prometheus/podmonitor.yaml").read_text()
    operator, engines = yaml.safe_load_all(text)
    labels = of(kustomize("overlays/default"), "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert operator["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (expression,) = engines["spec"]["selector"]["matchExpressions"]
    assert expression["key"] == names.LABEL_COMPONENT
    assert expression["values"] == [names.ENGINE_CONTAINER, names.LOAD_CONTAINER]


def test_the_variables_are_settings_of_the_process():
    for variable in container(of(kustomize("overlays/default"), "Deployment"))["env"]:
        assert variable["name"].removeprefix("FRONTIER_").lower() in Settings.model_fields, variable


def test_the_sample_is_kustomizable():
    (sample,) = kustomize("samples")
    assert sample["kind"] == "InferenceDeployment"


def test_helm_renders_what_kustomize_renders():
    ours, theirs = helm(), kustomize("overlays/default")
    assert granted(of(ours, "ClusterRole")["rules"]) == granted(of(theirs, "ClusterRole")["rules"])
    left, right = container(of(ours, "Deployment")), container(of(theirs, "Deployment"))
    assert left == right
    assert of(ours, "ClusterRoleBinding")["subjects"] == of(theirs, "ClusterRoleBinding")["subjects"]


def test_helm_renders_a_role_for_each_namespace():
    documents = helm("--set", "namespaces={a,b}", "--set", "podMonitor.enabled=true")
    roles = [document for document in documents if document["kind"] == "Role"]
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    assert all(granted(role["rules"]) == granted(template_rules("namespacedRules")) for role in roles)
    assert not [document for document in documents if document["kind"].startswith("Cluster")]
    assert [each["spec"].get("namespaceSelector") for each in documents if each["kind"] == "PodMonitor"] == [
        None,
        {"matchNames": ["a", "b"]},
    ]
    assert {"name": "FRONTIER_NAMESPACES", "value": "a,b"} in container(of(documents, "Deployment"))["env"]


def test_helm_finds_nothing_to_complain_about():
    if HELM is None:
        pytest.skip("helm is not on the PATH")
    subprocess.run([HELM, "lint", "--strict", CHART], check=True)


def test_every_setting_of_the_process_is_documented():
    page = (ROOT / "docs/reference/installation.md").read_text()
    assert [name for name in Settings.model_fields if f"`FRONTIER_{name.upper()}`" not in page] == []
