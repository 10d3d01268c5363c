from itertools import pairwise
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.frontier import hypervolume
from frontier_tuner.objectives import SLO, Objectives, Target
from frontier_tuner.plotting import figure_of, label
from frontier_tuner.plotting.page import page
from frontier_tuner.plotting.svg import svg, ticks
from frontier_tuner.plotting.text import HEIGHT, WIDTH, text
from frontier_tuner.trial import Failure
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record

OBJECTIVES = make_objectives()
OOM = Failure("EngineOutOfMemory", "CUDA <out> of memory")
XML = "{http://www.w3.org/2000/svg}"


def journal():
    rows = [(100, 100, 0.1), (80, 300, 0.3), (40, 500, 1.5), (20, 700, 3.0)]
    rungs = [make_measurement(2**n, speed=s, per_gpu=t, ttft=first) for n, (s, t, first) in enumerate(rows)]
    slower = [make_measurement(4, speed=60, per_gpu=200)]
    return [
        make_record(0, make_configuration(maxNumSeqs=16, kvCacheDtype="auto"), *slower),
        make_record(1, make_configuration(maxNumSeqs=64, kvCacheDtype="<fp8>"), *rungs),
        make_record(2, make_configuration(maxNumSeqs=256, kvCacheDtype="auto"), outcome="Infeasible", failure=OOM),
    ]


def figure(target=None, objectives=OBJECTIVES):
    return figure_of(journal(), objectives, target or Target())


def marks(drawn, kind):
    return [each for each in drawn.iter() if each.get("class") == kind]


def test_a_picture_has_every_curve_the_members_the_choice_and_what_has_no_point():
    found = figure()
    assert [(curve.label, len(curve.points), curve.baseline) for curve in found.curves] == [
        ("kvCacheDtype=auto maxNumSeqs=16", 1, True),
        ("kvCacheDtype=<fp8> maxNumSeqs=64", 4, False),
    ]
    assert [point.trial for point in found.members] == [1, 1, 1]
    assert found.selection.point.load.value == 4
    assert found.failed == (("kvCacheDtype=auto maxNumSeqs=256", "EngineOutOfMemory: CUDA <out> of memory"),)


def test_the_stairs_have_the_corners_of_the_frontier_and_its_area():
    found = figure()
    assert found.reached == ((100, 0.0), (100, 100), (80, 100), (80, 300), (40, 300), (40, 500), (0.0, 500))
    assert found.beyond[-3:] == ((20, 500), (20, 700), (0.0, 700))
    points = [point for curve in found.curves for point in curve.points]
    assert area(found.reached) == pytest.approx(hypervolume(points))


def area(corners):
    return sum((one[0] + other[0]) / 2 * (other[1] - one[1]) for one, other in pairwise(corners))


@pytest.mark.parametrize(
    ("objectives", "target", "speed", "throughput"),
    [
        (OBJECTIVES, Target(), None, None),
        (Objectives((SLO("s", "UserTokensPerSecond", 50, minimum=30.0),)), Target(headroom_percent=10), 33.0, None),
        (Objectives((SLO("s", "UserTokensPerSecond", 5, minimum=30.0),)), Target(), None, None),
        (OBJECTIVES, Target("AtUserSpeed", user_tokens_per_second=50.0), 50.0, None),
        (make_objectives(max_cost=4.0, price_per_gpu_hour=3.6), Target(), None, 250.0),
        (make_objectives(price_per_gpu_hour=3.6), Target("AtCost", max_cost=2.0), None, 500.0),
        (make_objectives(max_cost=4.0), Target(), None, None),
    ],
)
def test_floors_are_drawn_where_a_bound_is_one_of_the_axes(objectives, target, speed, throughput):
    found = figure(target, objectives)
    assert found.speed_floor == (None if speed is None else pytest.approx(speed))
    assert found.throughput_floor == (None if throughput is None else pytest.approx(throughput))
    drawn = fromstring(svg(found))
    assert len(marks(drawn, "floor")) == (speed is not None) + (throughput is not None)


def test_the_svg_stands_alone_and_says_what_each_mark_is():
    drawn = fromstring(svg(figure(), "Chat & code"))
    assert drawn.find(f"{XML}title").text == "Chat & code"
    places = {kind: marks(drawn, kind)[:-1] for kind in ("fit", "unfit", "member", "chosen")}
    assert {kind: len(found) for kind, found in places.items()} == {"fit": 4, "unfit": 1, "member": 3, "chosen": 1}
    tip = places["chosen"][0].find(f"{XML}title").text
    assert tip.startswith("selected: kvCacheDtype=<fp8> maxNumSeqs=64 at 4 concurrent, trial 1: 40 tokens/s/user")
    assert "misses ttft: TTFT/95 is 3 s" in places["unfit"][0].find(f"{XML}title").text
    assert len(marks(drawn, "edge")) == 1
    assert not [value for each in drawn.iter() for value in each.attrib.values() if "url" in value or "href" in value]


def test_marks_lie_inside_the_picture_and_faster_is_to_the_right():
    drawn = fromstring(svg(figure()))
    circles = [each for kind in ("fit", "unfit", "member") for each in marks(drawn, kind)]
    assert all(0 < float(each.get("cx")) < 960 and 0 < float(each.get("cy")) < 660 for each in circles)
    members = [float(each.get("cx")) for each in marks(drawn, "member")[:-1]]
    assert members == sorted(members, reverse=True)


def test_without_a_feasible_point_the_picture_says_so():
    found = figure(objectives=make_objectives(ttft=0.001))
    assert found.reached == ()
    assert "no measured point holds all objectives" in svg(found)
    assert "No feasible point" in page(found)
    assert text(found).count("@") == 1


def test_the_page_has_the_picture_the_reason_and_the_frontier_with_everything_escaped():
    drawn = page(figure(), "a < b")
    assert drawn.startswith("<!DOCTYPE html>")
    assert "<title>a &lt; b</title>" in drawn
    assert "&lt;fp8&gt;" in drawn
    assert "<fp8>" not in drawn
    assert drawn.count('<tr class="chosen">') == 1
    assert drawn.count("<tr") == 4
    assert "CUDA &lt;out&gt; of memory" in drawn
    assert "src=" not in drawn


def test_a_terminal_shows_each_kind_of_point_at_its_place():
    lines = text(figure()).splitlines()
    assert lines[0] == "tokens/s/GPU"
    assert len(lines) == HEIGHT + 4
    grid = "\n".join(lines[1 : HEIGHT + 1])
    assert {mark: grid.count(mark) for mark in "xo#@"} == {"x": 1, "o": 1, "#": 2, "@": 1}
    assert "x" in lines[1]
    assert lines[1].startswith("700 |")
    assert "100" in lines[HEIGHT + 2]
    floors = text(figure(Target("AtUserSpeed", user_tokens_per_second=50.0), make_objectives(max_cost=9.0)))
    assert floors.count(":") > HEIGHT / 2
    priced = text(figure(objectives=make_objectives(max_cost=4.0, price_per_gpu_hour=3.6)))
    assert max(line.count(":") for line in priced.splitlines()) > WIDTH / 2


@given(st.floats(1e-6, 1e9))
def test_ticks_are_few_and_reach_the_highest_value(highest):
    found = ticks(highest)
    assert found[0] == 0
    assert found[-1] >= highest * (1 - 1e-6)
    assert 4 <= len(found) <= 9


def test_labels_name_what_differs():
    one, other = make_configuration(a=1, b=2), make_configuration(a=1, b=3)
    assert label(one, [one, other]) == "b=2"
    assert label(one, [one]) == "a=1 b=2"
    assert label(make_configuration(a=1, b=2, c=4), [one]) == "c=4"
