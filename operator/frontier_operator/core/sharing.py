"""How much of the real traffic live trials may take, by counting engines.

A Service spreads new connections evenly over its ready pods, so the share of t trial engines beside r replicas that
serve is t / (r + t). It is never above `measurement.live.maxSharePercent`: without enough replicas no trial starts, and
when replicas go away trials leave.
"""

import math

from frontier_operator.core.observation import Observation, PodView, TrialView


def allowed(replicas: int, percent: int) -> int:
    """Return how many trial engines beside so many replicas take at most this share of the traffic."""
    return replicas * percent // (100 - percent)


def needed(engines: int, percent: int) -> int:
    """Return how many replicas so many trial engines need beside them to stay within a share."""
    return math.ceil(engines * (100 - percent) / percent)


def is_live(observation: Observation) -> bool:
    """Return whether trials of the present spec take real traffic."""
    return observation.spec is not None and observation.spec.measurement.mode == "Live"


def ready_replicas(observation: Observation) -> int:
    """Return the pods of all serving Deployments that take new connections now."""
    return sum(pod.ready and not pod.terminating for view in observation.serving for pod in view.pods)


def live_trials(observation: Observation) -> tuple[TrialView, ...]:
    """Return the trials whose engines take real traffic or will once they are ready, oldest first.

    One that is being deleted takes no new connection any more.
    """
    everything = observation.trials + observation.stale_trials
    return tuple(sorted((t for t in everything if t.live and _serves(t.engine)), key=lambda trial: trial.created))


def _serves(engine: PodView | None) -> bool:
    return engine is not None and not engine.terminating and engine.exit_code is None


def room(observation: Observation) -> int:
    """Return how many more live trials may start their engines now; none while a canary takes its own share."""
    spec = observation.spec
    if spec is None or observation.status.get("candidate"):
        return 0
    most = allowed(ready_replicas(observation), spec.measurement.sharing.max_share_percent)
    return max(0, most - len(live_trials(observation)))


def most_trials(observation: Observation) -> float:
    """Return how many trials may be under way at a time as far as the traffic goes; infinity without live trials."""
    if observation.spec is None or not is_live(observation):
        return math.inf
    return allowed(ready_replicas(observation), observation.spec.measurement.sharing.max_share_percent)


def excess(observation: Observation) -> frozenset[str]:
    """Return the names of the live trials that must leave, the youngest first, for the others to stay in the share."""
    spec, engines = observation.spec, live_trials(observation)
    percent = spec.measurement.sharing.max_share_percent if spec else 0
    return frozenset(trial.name for trial in engines[allowed(ready_replicas(observation), percent) :])


def too_few_replicas(observation: Observation) -> str:
    """Return why not even one trial can take real traffic, with the ways out; empty where one can."""
    if observation.spec is None or not is_live(observation):
        return ""
    percent, ready = observation.spec.measurement.sharing.max_share_percent, ready_replicas(observation)
    if allowed(ready, percent) >= 1:
        return ""
    share = math.ceil(100 / (ready + 1))
    enough = needed(1, percent)
    raise_it = f", or set measurement.live.maxSharePercent to {share}" if ready else ""
    return (
        f"measurement.live.maxSharePercent is {percent}: one trial engine beside {ready} ready replicas would take "
        f"{share} % of the traffic; run {enough} replicas (workload.requestRate, or scale the Deployment){raise_it}"
    )
