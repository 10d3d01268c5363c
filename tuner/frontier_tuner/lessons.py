"""What refusals of earlier trials teach about configurations that were not tried yet.

An engine that dies with words that blame one value will die of it again, whatever the other values are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm_observed import learned_rules
from frontier_tuner.trial import TrialRecord


@dataclass(frozen=True)
class Lessons:
    """Configurations that are not tried because of what an engine said at its end.

    Attributes:
        refused: The configurations.
        sentences: Why, each with how many configurations it is about; the one with the most first.
    """

    refused: frozenset[Configuration] = frozenset()
    sentences: tuple[str, ...] = ()


def lessons(journal: Sequence[TrialRecord], candidates: Iterable[Configuration]) -> Lessons:
    """Return which of some configurations the refusals of a journal rule out.

    What rules out a configuration that has served is no lesson.

    Args:
        journal: Finished trials; only those that are infeasible teach, by their failure's message.
        candidates: What might be tried.
    """
    refusals = [
        (record.configuration, record.failure.message)
        for record in sorted(journal, key=lambda record: record.number)
        if record.outcome == "Infeasible" and record.failure is not None
    ]
    served = {record.configuration for record in journal if record.outcome in ("Complete", "Pruned")}
    rules = [rule for rule in learned_rules(refusals) if all(rule.check(each) is None for each in served)]
    if not rules:
        return Lessons()
    found: dict[Configuration, str] = {}
    for configuration in candidates:
        words = (rule.check(configuration) for rule in rules)
        reason = next((sentence for sentence in words if sentence is not None), None)
        if reason is not None:
            found[configuration] = reason
    counted = Counter(found.values()).most_common()
    sentences = (f"{reason} ({count} configuration{'s' * (count > 1)})" for reason, count in counted)
    return Lessons(frozenset(found), tuple(sentences))
