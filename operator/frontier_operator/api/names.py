"""Names that users and other programs rely on: group, kinds, labels, annotations, field manager."""

GROUP = "frontier-operator.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

INFERENCE_DEPLOYMENT = "InferenceDeployment"
INFERENCE_DEPLOYMENTS = "inferencedeployments"
TUNING_TRIAL = "TuningTrial"
TUNING_TRIALS = "tuningtrials"

FIELD_MANAGER = "frontier-operator"

LABEL_DEPLOYMENT = f"{GROUP}/deployment"
"""On everything the operator owns: the name of the InferenceDeployment."""
LABEL_COMPONENT = f"{GROUP}/component"
"""On pods: `engine` or `load`."""
LABEL_ROLE = f"{GROUP}/role"
"""On serving pods and on the engines of live trials: always `serving`; the stable Service selects it."""
LABEL_CONFIGURATION = f"{GROUP}/configuration"
"""The hash of the configuration."""
LABEL_REVISION = f"{GROUP}/revision"
"""On serving Deployments and pods: names everything that the pods are made of."""
LABEL_TRIAL = f"{GROUP}/trial"
"""On trial engine pods and load pods: the name of the TuningTrial."""
LABEL_FINGERPRINT = f"{GROUP}/fingerprint"
"""On TuningTrials: the study's fingerprint."""
LABEL_RUNG = f"{GROUP}/rung"
"""On load Jobs: the position of the rung in its trial, from 0."""

ANNOTATION_RECONCILE = f"{GROUP}/reconcile-requested-at"
ANNOTATION_APPROVE = f"{GROUP}/approve"
ANNOTATION_ROLLBACK = f"{GROUP}/rollback"

ENGINE_CONTAINER = "engine"
ENGINE_PORT = 8000
LOAD_CONTAINER = "load"
LOAD_METRICS_PORT = 9100
ANNOTATION_CONFIGURATION = f"{GROUP}/configuration-values"
"""On serving Deployments: the configuration as JSON, so that a lost status can be rebuilt."""
