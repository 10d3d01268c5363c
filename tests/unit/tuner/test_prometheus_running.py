import math
import random
from bisect import bisect_left

import pytest

from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus.histograms import Buckets
from frontier_tuner.prometheus.intervals import quantile_ranks
from frontier_tuner.prometheus.precision import Precision
from frontier_tuner.prometheus.running import Snapshot, decide, estimates_of

EDGES = tuple(0.01 * 10 ** (step / 20) for step in range(60))
SLOS = Objectives(slos=(SLO("ttft", "TTFT", 95, maximum=1.0),))


def snapshots(seconds, per_second=20, median=0.2, sigma=0.5, seed=1):
    """Return one snapshot a second of lognormal TTFTs, and of tokens that come evenly."""
    generator, counts, taken = random.Random(seed), [0.0] * (len(EDGES) + 1), []
    for second in range(seconds + 1):
        if second:
            for _ in range(per_second):
                counts[bisect_left(EDGES, generator.lognormvariate(math.log(median), sigma))] += 1
        cumulative = tuple(sum(counts[: position + 1]) for position in range(len(counts)))
        taken.append(Snapshot(float(second), {"TTFT": Buckets((*EDGES, math.inf), cumulative)}, 1000.0 * second))
    return taken


def test_the_estimates_are_those_of_the_histograms():
    found = estimates_of(snapshots(60), SLOS)
    true = 0.2 * math.exp(0.5 * 1.6449)
    assert found["TTFT/95"].value == pytest.approx(true, rel=0.1)
    assert found["TTFT/95"].low < true < found["TTFT/95"].high
    assert found["TTFT/95"].n == 1200
    assert found["OutputTokensPerSecond"].value == pytest.approx(1000)
    assert found["OutputTokensPerSecond"].high < 1010


def test_nothing_is_known_at_the_start_and_the_rung_goes_on():
    assert estimates_of([], SLOS) == {}
    assert not decide(snapshots(0), SLOS, max_seconds=60.0).stop


def test_a_rung_ends_as_soon_as_it_is_decided_and_not_before_the_percentile_has_its_observations():
    taken = snapshots(60)
    ends = [count for count in range(1, 61) if decide(taken[: count + 1], SLOS, max_seconds=120.0).stop]
    assert ends[0] >= 10  # 20 requests a second, 200 needed
    assert ends[0] < 20
    assert ends == list(range(ends[0], 61))


def test_a_value_near_its_bound_takes_longer_and_is_cut_by_the_time():
    near = Objectives(slos=(SLO("ttft", "TTFT", 95, maximum=0.45),))
    precision = Precision(percent=1.0)
    going = decide(snapshots(30), near, max_seconds=60.0, precision=precision)
    assert (going.stop, going.open) == (False, ("TTFT/95",))
    over = decide(snapshots(60), near, max_seconds=60.0, precision=precision)
    assert (over.stop, over.reason) == (True, "TimeUp")


def queue(seed, utilisation, seconds=120, served=20.0, warm_up=20.0):
    """Return a snapshot a second of the times in an M/M/1 queue, which follow an exponential distribution."""
    generator, moment, free, answers = random.Random(seed), 0.0, 0.0, []
    while moment < warm_up + seconds:
        moment += generator.expovariate(utilisation * served)
        free = max(free, moment) + generator.expovariate(served)
        if moment >= warm_up:
            answers.append((free - warm_up, free - moment))
    counts, taken, answered = [0.0] * (len(EDGES) + 1), [], 0
    for second in range(seconds + 1):
        while answered < len(answers) and (answers[answered][0] <= second or second == seconds):
            counts[bisect_left(EDGES, answers[answered][1])] += 1
            answered += 1
        cumulative = tuple(sum(counts[: position + 1]) for position in range(len(counts)))
        buckets = {"TTFT": Buckets((*EDGES, math.inf), cumulative)}
        taken.append(Snapshot(float(second), buckets, float(answered)))
    return taken


def test_the_intervals_of_a_queue_hold_its_known_percentile_although_requests_wait_for_each_other():
    utilisation, served, runs = 0.7, 20.0, 40
    true = -math.log(0.05) / (served * (1 - utilisation))
    covered = naive = rate = 0
    for seed in range(runs):
        taken = queue(seed, utilisation)
        found = estimates_of(taken, Objectives())
        covered += found["TTFT/95"].low <= true <= found["TTFT/95"].high
        rate += abs(found["OutputTokensPerSecond"].value - utilisation * served) <= (
            found["OutputTokensPerSecond"].high - found["OutputTokensPerSecond"].value
        )
        buckets = taken[-1].histograms["TTFT"]
        low, high = quantile_ranks(0.95, buckets.total)
        naive += buckets.around(low)[0] <= true <= buckets.around(high)[1]
    assert covered >= 0.9 * runs
    assert rate >= 0.9 * runs
    assert naive < 0.75 * runs


def test_bursts_are_trusted_less_than_the_same_observations_alone():
    def bursty(seconds):
        generator, count, slow, taken = random.Random(3), 0.0, 0.0, []
        for second in range(seconds + 1):
            if second:
                count += 20
                slow += 20 * (generator.random() < 0.1)
            counts = (count - slow, count, count)
            taken.append(Snapshot(float(second), {"TTFT": Buckets((0.1, 2.0, math.inf), counts)}, 1000.0 * second))
        return taken

    found = estimates_of(bursty(60), Objectives())["TTFT/95"]
    assert (found.low, found.high) == (0.0, 2.0)
