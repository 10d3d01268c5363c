import math
import random
from bisect import bisect_left
from dataclasses import replace

import pytest

from frontier_tuner.load.options import LoadOptions
from frontier_tuner.load.progress import Counts, Progress
from frontier_tuner.measurement import Ending, Load
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus.ending import WellEnough
from frontier_tuner.prometheus.precision import Precision

EDGES = (*(0.01 * 10 ** (step / 20) for step in range(60)), math.inf)
SLOS = Objectives(slos=(SLO("ttft", "TTFT", 95, maximum=1.0),))


def course(seconds, per_second=20, in_flight=8):
    """Return a look a second at lognormal TTFTs with a p95 near 0.46 s, and tokens that come evenly."""
    generator, counts, taken = random.Random(1), [0] * len(EDGES), []
    for second in range(seconds + 1):
        if second:
            for _ in range(per_second):
                counts[bisect_left(EDGES, generator.lognormvariate(math.log(0.2), 0.5))] += 1
        cumulative = tuple(float(sum(counts[: position + 1])) for position in range(len(counts)))
        answered = per_second * second
        histograms = {"TTFT": Counts(EDGES, cumulative)}
        taken.append(Progress(float(second), histograms, 1000 * second, answered, answered, in_flight))
    return taken


def make_rule(**over):
    return replace(WellEnough(Load("Concurrency", 8), SLOS, 120.0, min_seconds=10.0, min_requests=100), **over)


def first_end(rule, taken):
    """Return after how many seconds a rule ends a course, or None."""
    ends = (n - 1 for n in range(2, len(taken) + 1) if rule(taken[:n], over=False) is not None)
    return next(ends, None)


def test_a_rung_ends_when_its_slo_is_decided_and_not_before_its_percentile_has_its_observations():
    assert 10 <= first_end(make_rule(), course(60)) < 20
    assert make_rule()(course(20), over=False) == Ending(
        "Tight", (), "after 20 s TTFT/95, OutputTokensPerSecond are known to 15 % or decided"
    )


@pytest.mark.parametrize(
    ("over", "seconds"),
    [({"min_seconds": 40.0}, 40), ({"min_requests": 701}, 36), ({"min_requests": 700}, 35)],
)
def test_it_does_not_end_before_its_shortest_window_or_its_fewest_requests(over, seconds):
    assert first_end(make_rule(**over), course(60)) == seconds


def test_it_does_not_end_while_half_as_many_requests_are_in_flight_as_were_answered():
    assert first_end(make_rule(), course(60, in_flight=300)) == 30


def test_an_open_loop_ends_only_where_what_was_sent_is_its_rate():
    assert first_end(make_rule(load=Load("RequestRate", 20.3)), course(60)) is not None
    rule = make_rule(load=Load("RequestRate", 21.0))
    assert first_end(rule, course(60)) is None
    over = rule(course(60), over=True)
    assert (over.reason, over.open) == ("TimeUp", ())
    assert over.message == "the time of 120 s is up; 20 requests/s so far, of 21"


def test_when_the_time_is_up_it_says_what_is_open():
    near = Objectives(slos=(SLO("ttft", "TTFT", 95, maximum=0.46),))
    rule = make_rule(objectives=near, precision=Precision(1.0))
    assert first_end(rule, course(60)) is None
    over = rule(course(60), over=True)
    assert (over.reason, over.open) == ("TimeUp", ("TTFT/95",))
    assert over.message.startswith("the time of 120 s is up; TTFT/95: 0.4")


def test_a_window_that_never_began_is_open_in_everything():
    over = make_rule()([Progress(0.0, {})], over=True)
    assert (over.reason, over.open) == ("TimeUp", ("TTFT/95", "OutputTokensPerSecond"))


def test_the_options_of_the_load_generator_say_when_and_a_precision_of_zero_never():
    options = LoadOptions(
        "http://h:1", "m", Load("Concurrency", 8), {}, 120.0, slos=SLOS.slos, min_window_seconds=10, min_requests=100
    )
    assert WellEnough.of(options) is None
    assert WellEnough.of(replace(options, precision_percent=20.0)) == make_rule(precision=Precision(20.0))
