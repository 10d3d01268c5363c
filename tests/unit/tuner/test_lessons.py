import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.lessons import Lessons, lessons
from frontier_tuner.objectives import Target
from frontier_tuner.space import Parameter, SearchSpace
from frontier_tuner.stopping import Budget, Stability, Stop
from frontier_tuner.trial import Failure
from frontier_tuner.tuner import propose
from support.tuner_builders import make_objectives, make_record

SPACE = SearchSpace(
    (Parameter("pipelineParallelSize", (1, 2, 4)), Parameter("maxNumSeqs", (16, 64))),
    defaults={"pipelineParallelSize": 1, "maxNumSeqs": 64},
)
WORDS = Failure("EngineStartFailed", "NotImplementedError: Pipeline parallelism is not supported for this model.")
TAUGHT = (
    "the engine refused pipelineParallelSize 2 in an earlier trial, so 4 is not tried again (2 configurations)",
    "the engine refused pipelineParallelSize 2 in an earlier trial, so 2 is not tried again (1 configuration)",
)


def split(stages, sequences=64):
    return Configuration.of({"pipelineParallelSize": stages, "maxNumSeqs": sequences})


def ask(journal, **over):
    return propose(
        SPACE,
        journal,
        objectives=make_objectives(),
        target=Target(),
        budget=Budget(None),
        spent_seconds=0.0,
        seed=1,
        stability=Stability(minimum=10**6),
        **over,
    )


JOURNAL = [make_record(0, split(1)), make_record(1, split(2), outcome="Infeasible", failure=WORDS)]


@pytest.mark.parametrize("sampler", ["Frontier", "TPE", "Random"])
def test_what_an_engine_refused_is_not_tried_with_other_values_beside_it(sampler):
    answer = ask(JOURNAL, sampler=sampler)
    assert answer.configuration == split(1, 16)
    last = ask([*JOURNAL, make_record(2, split(1, 16))], sampler=sampler)
    words = "; ".join(("all 3 valid configurations are tried or under way", *TAUGHT))
    assert last == Stop("SearchSpaceExhausted", words)


def test_other_deaths_teach_nothing_of_the_kind():
    died = make_record(1, split(2), outcome="Infeasible", failure=Failure("EngineOutOfMemory", "CUDA out of memory"))
    assert lessons([JOURNAL[0], died], SPACE.configurations()) == Lessons()
    lost = make_record(1, split(2), outcome="Failed", failure=Failure("PodLost", WORDS.message))
    assert lessons([JOURNAL[0], lost], SPACE.configurations()) == Lessons()


def test_a_refusal_that_another_start_has_contradicted_is_no_lesson():
    assert lessons([*JOURNAL, make_record(2, split(4))], SPACE.configurations()) == Lessons()


def test_the_lessons_name_configurations_and_reasons():
    found = lessons(JOURNAL, [c for c in SPACE.configurations() if c != split(2)])
    assert found.refused == {split(2, 16), split(4), split(4, 16)}
    assert found.sentences == TAUGHT
