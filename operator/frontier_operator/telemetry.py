"""The operator's own metrics, served on `/metrics` beside the process's."""

from prometheus_client import Counter, Gauge, Histogram

PASSES = Counter("frontier_operator_passes_total", "Passes over InferenceDeployments, by how they ended.", ["result"])
PASS_SECONDS = Histogram("frontier_operator_pass_seconds", "Duration of a pass over one InferenceDeployment.")
OBJECTS = Gauge("frontier_operator_objects", "InferenceDeployments that have a loop.")
ACTIONS = Counter("frontier_operator_actions_total", "Actions carried out, by kind and result.", ["action", "result"])
