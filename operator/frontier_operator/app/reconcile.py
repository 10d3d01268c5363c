"""One pass over one InferenceDeployment: observe, decide, apply, report."""

import logging
from dataclasses import dataclass

from frontier_operator import telemetry
from frontier_operator.api import names
from frontier_operator.api.policy import Policy
from frontier_operator.app.apply import Applier
from frontier_operator.app.observe import observe
from frontier_operator.core.decide import decide
from frontier_operator.core.decision import Decision
from frontier_operator.core.observation import Observation, Tunables
from frontier_operator.core.render import LoadSettings
from frontier_operator.core.report import report
from frontier_operator.errors import ConflictError, OperatorError
from frontier_operator.ports import Manifest, Ports
from frontier_tuner.errors import TunerError

logger = logging.getLogger(__name__)

GONE = -1.0
"""The time to the next look at an object that exists no more."""


@dataclass(frozen=True)
class Reconciler:
    """Runs passes; holds nothing between them."""

    ports: Ports
    tunables: Tunables
    load: LoadSettings
    policy: Policy

    def run(self, namespace: str, name: str) -> float:
        """Do one pass and return the seconds until the next, or `GONE`.

        Raises:
            OperatorError: The API server did not answer; nothing is lost, the next pass sees what was done.
        """
        manifest = self.ports.objects.get(names.INFERENCE_DEPLOYMENT, namespace, name)
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            return GONE
        manifest.setdefault("kind", names.INFERENCE_DEPLOYMENT)
        observation = observe(manifest, self.ports, self.tunables, self.policy)
        decision = decide(observation)
        troubles = self._apply(observation, decision, manifest)
        self._report(observation, decision, manifest, troubles)
        return decision.requeue_after

    def _apply(self, observation: Observation, decision: Decision, manifest: Manifest) -> list[str]:
        troubles: list[str] = []
        if not decision.actions:
            return troubles
        applier = Applier(observation, manifest, self.ports, self.load)
        for action in decision.actions:
            try:
                applier.apply(action)
                telemetry.ACTIONS.labels(type(action).__name__, "ok").inc()
            except (OperatorError, TunerError) as error:
                telemetry.ACTIONS.labels(type(action).__name__, "failed").inc()
                # One action's trouble must not keep the others back; the next pass decides on what is there then.
                logger.warning("%s/%s: %s", observation.namespace, observation.name, error)
                troubles.append(str(error))
        return troubles

    def _report(self, observation: Observation, decision: Decision, manifest: Manifest, troubles: list[str]) -> None:
        status = report(observation, decision, troubles)
        if status == observation.status:
            return
        before = (observation.status.get("summary") or {}).get("reason")
        if before != decision.reason:
            logger.info("%s/%s: %s: %s", observation.namespace, observation.name, decision.reason, decision.message)
        try:
            self.ports.objects.write_status({**manifest, "status": status})
        except ConflictError:
            # The spec was edited or somebody else wrote: the next pass decides on the new object.
            logger.info("%s/%s changed while it was looked at", observation.namespace, observation.name)
