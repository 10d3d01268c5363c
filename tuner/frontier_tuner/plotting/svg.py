"""A study's picture as SVG: one element tree, no scripts, no fonts or files from elsewhere."""

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from frontier_tuner.axes import SPEED, THROUGHPUT
from frontier_tuner.frontier import Point
from frontier_tuner.measurement import Estimate
from frontier_tuner.plotting import Curve, Figure

WIDTH, HEIGHT = 960, 660
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 92, 96
TICKS = 6
LONGEST = 130
"""Characters of a line of text that fit the width."""
STYLE = """
text { font-family: system-ui, sans-serif; font-size: 13px; fill: #24292f }
.title { font-size: 17px; font-weight: 600 }
.grid { stroke: #e4e7eb; stroke-width: 1 }
.axis { stroke: #57606a; stroke-width: 1 }
.missed { fill: #d9822b; fill-opacity: 0.12; stroke: none }
.floor { stroke: #d9822b; stroke-dasharray: 5 4; stroke-width: 1.2; fill: none }
.curve { fill: none; stroke: #8c96a3; stroke-width: 1; stroke-opacity: 0.55 }
.baseline { stroke: #57606a; stroke-dasharray: 2 3; stroke-opacity: 1 }
.edge { fill: none; stroke: #0b5cad; stroke-width: 2 }
.fit { fill: #6d9fd1; stroke: none }
.unfit { fill: none; stroke: #d9822b; stroke-width: 1.3 }
.member { fill: #0b5cad; stroke: #ffffff; stroke-width: 1 }
.whisker { stroke: #0b5cad; stroke-width: 1; stroke-opacity: 0.5 }
.chosen { fill: #c4272f; stroke: #ffffff; stroke-width: 1.5 }
.note { font-size: 12px; fill: #57606a }
.tag { font-weight: 600 }
.halo { font-weight: 600; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
"""


def svg(figure: Figure, title: str = "Efficient frontier") -> str:
    """Return the figure as one self-contained SVG document."""
    canvas = _Canvas(figure, title)
    canvas.axes()
    canvas.regions()
    for curve in figure.curves:
        canvas.curve(curve)
    canvas.frontier()
    canvas.chosen()
    canvas.legend()
    return tostring(canvas.root, encoding="unicode")


def ticks(highest: float, count: int = TICKS) -> tuple[float, ...]:
    """Return round numbers from 0 to the first one not below `highest`: steps of 1, 2, 2.5 or 5 times a power of 10."""
    raw = highest / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return tuple(step * place for place in range(math.ceil(highest / step - 1e-9) + 1))


class _Canvas:
    def __init__(self, figure: Figure, title: str) -> None:
        self.figure = figure
        fastest, cheapest = figure.highest
        self.speeds, self.throughputs = ticks(fastest), ticks(cheapest)
        size = f"0 0 {WIDTH} {HEIGHT}"
        self.root = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=size, role="img")
        SubElement(self.root, "title").text = title
        SubElement(self.root, "style").text = STYLE
        SubElement(self.root, "rect", width=str(WIDTH), height=str(HEIGHT), fill="#ffffff")
        self.text(LEFT, 28, title, "title")

    def x(self, speed: float) -> float:
        return round(LEFT + speed / self.speeds[-1] * (WIDTH - LEFT - RIGHT), 2)

    def y(self, throughput: float) -> float:
        return round(HEIGHT - BOTTOM - throughput / self.throughputs[-1] * (HEIGHT - TOP - BOTTOM), 2)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        SubElement(self.root, "text", {"x": f"{x:g}", "y": f"{y:g}", "class": kind, "text-anchor": anchor}).text = words

    def line(self, ends: Sequence[float], kind: str) -> None:
        names = ("x1", "y1", "x2", "y2")
        places = {name: f"{end:g}" for name, end in zip(names, ends, strict=True)}
        SubElement(self.root, "line", places | {"class": kind})

    def path(self, corners: Sequence[tuple[float, float]], kind: str, *, closed: bool = False) -> Element:
        steps = " L".join(f"{self.x(speed):g} {self.y(throughput):g}" for speed, throughput in corners)
        return SubElement(self.root, "path", {"d": f"M{steps}{' Z' if closed else ''}", "class": kind})

    def axes(self) -> None:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for tick in self.speeds:
            self.line((self.x(tick), TOP, self.x(tick), bottom), "grid")
            self.text(self.x(tick), bottom + 18, f"{tick:g}", anchor="middle")
        for tick in self.throughputs:
            self.line((LEFT, self.y(tick), right, self.y(tick)), "grid")
            self.text(LEFT - 8, self.y(tick) + 4, f"{tick:g}", anchor="end")
        self.line((LEFT, bottom, right, bottom), "axis")
        self.line((LEFT, TOP, LEFT, bottom), "axis")
        self.text((LEFT + right) / 2, bottom + 38, f"{SPEED.title} (median)", anchor="middle")
        self.text(LEFT - 60, TOP - 14, THROUGHPUT.title)

    def regions(self) -> None:
        figure = self.figure
        fastest, cheapest = self.speeds[-1], self.throughputs[-1]
        if len(figure.beyond) > 1:
            # Out along everything measured, back along what holds the objectives.
            inner = tuple(reversed(figure.reached)) or ((0.0, 0.0),)
            self.path((*figure.beyond, *inner), "missed", closed=True)
        if figure.speed_floor is not None:
            floor = figure.speed_floor
            self.path(((0, 0), (floor, 0), (floor, cheapest), (0, cheapest)), "missed", closed=True)
            self.path(((floor, 0), (floor, cheapest)), "floor")
        if figure.throughput_floor is not None:
            floor = figure.throughput_floor
            self.path(((0, 0), (fastest, 0), (fastest, floor), (0, floor)), "missed", closed=True)
            self.path(((0, floor), (fastest, floor)), "floor")

    def curve(self, curve: Curve) -> None:
        kind = "curve baseline" if curve.baseline else "curve"
        line = self.path([(point.speed, point.throughput) for point in curve.points], kind)
        SubElement(line, "title").text = curve.label
        for point in curve.points:
            self.mark(point, "fit" if point.feasible else "unfit", 3.2, curve.label)

    def mark(self, point: Point, kind: str, radius: float, name: str) -> None:
        place = {"cx": f"{self.x(point.speed):g}", "cy": f"{self.y(point.throughput):g}", "r": f"{radius:g}"}
        mark = SubElement(self.root, "circle", place | {"class": kind})
        SubElement(mark, "title").text = describe(point, name)

    def frontier(self) -> None:
        if self.figure.reached:
            self.path(self.figure.reached, "edge")
        names = {curve.points[0].configuration: curve.label for curve in self.figure.curves}
        for point in self.figure.members:
            speed, throughput = (point.metrics[axis.key] for axis in (SPEED, THROUGHPUT))
            self.whiskers(speed, throughput)
            self.mark(point, "member", 5, names[point.configuration])

    def whiskers(self, speed: Estimate, throughput: Estimate) -> None:
        left, right = (self.x(min(max(0.0, end), self.speeds[-1])) for end in (speed.low, speed.high))
        low, high = (self.y(min(max(0.0, end), self.throughputs[-1])) for end in (throughput.low, throughput.high))
        self.line((left, self.y(throughput.value), right, self.y(throughput.value)), "whisker")
        self.line((self.x(speed.value), low, self.x(speed.value), high), "whisker")

    def chosen(self) -> None:
        point = self.figure.selection.point
        if point is None:
            self.text(LEFT, 50, "no measured point holds all objectives", "note")
            return
        name = next(curve.label for curve in self.figure.curves if curve.points[0].configuration == point.configuration)
        self.text(LEFT, 50, _cut(f"selected: {name}"), "note")
        self.mark(point, "chosen", 7.5, f"selected: {name}")
        right = self.x(point.speed) < WIDTH / 2
        at = self.x(point.speed) + (12 if right else -12)
        tag = f"trial {point.trial} at {point.load}"
        for kind in ("halo", "tag"):
            self.text(at, self.y(point.throughput) - 10, tag, kind, "start" if right else "end")

    def legend(self) -> None:
        entries = (
            ("chosen", "selected"),
            ("member", "on the frontier, with 95 % intervals"),
            ("fit", "holds all objectives"),
            ("unfit", "misses an objective"),
            ("missed", "only reached by missing an objective"),
        )
        left, y = float(LEFT), HEIGHT - 22
        for kind, words in entries:
            SubElement(self.root, "circle", {"cx": f"{left:g}", "cy": f"{y - 4}", "r": "5", "class": kind})
            self.text(left + 11, y, words, "note")
            left += 28 + 6 * len(words)


def describe(point: Point, name: str) -> str:
    """Return a point as a tool tip: what it is, where it lies and what it misses."""
    missed = "; ".join(violation.message for violation in point.violations)
    figures = f"{point.speed:.4g} {SPEED.title}, {point.throughput:.4g} {THROUGHPUT.title}"
    return f"{name} at {point.load}, trial {point.trial}: {figures}" + (f"; misses {missed}" if missed else "")


def _cut(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"
