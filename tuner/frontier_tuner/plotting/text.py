"""A study's picture in a terminal."""

from collections.abc import Callable

from frontier_tuner.plotting import Figure

WIDTH, HEIGHT = 72, 20
MARKS = (("x", "misses an objective"), ("o", "holds all objectives"), ("#", "on the frontier"), ("@", "selected"))
"""Later marks cover earlier ones."""


def text(figure: Figure, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the points of a figure on a grid of characters, with the axes' ranges and what the marks mean."""
    fastest, cheapest = figure.highest
    rows = [[" "] * width for _ in range(height)]

    def put(speed: float, throughput: float, mark: str) -> None:
        column = min(width - 1, int(speed / fastest * (width - 1) + 0.5))
        row = min(height - 1, int(throughput / cheapest * (height - 1) + 0.5))
        rows[height - 1 - row][column] = mark

    _floors(figure, rows, fastest, cheapest)
    everything = [point for curve in figure.curves for point in curve.points]
    for point in sorted(everything, key=lambda point: point.feasible):
        put(point.speed, point.throughput, "o" if point.feasible else "x")
    for point in figure.members:
        put(point.speed, point.throughput, "#")
    if figure.selection.point is not None:
        put(figure.selection.point.speed, figure.selection.point.throughput, "@")
    margin = max(len(f"{cheapest:.4g}"), 1)
    lines = [
        f"{_at(row, height, lambda part: f'{cheapest * part:.4g}'):>{margin}} |{''.join(cells).rstrip()}"
        for row, cells in enumerate(rows)
    ]
    scale = f"{'0':<{width // 2}}{fastest / 2:<{width // 2 - 8}.4g}{fastest:>8.4g}"
    return "\n".join(
        [
            "tokens/s/GPU",
            *lines,
            f"{'':>{margin}} +{'-' * width}",
            f"{'':>{margin}}  {scale}  tokens/s/user",
            "  ".join(f"{mark} {meaning}" for mark, meaning in MARKS),
        ]
    )


def _at(row: int, height: int, write: Callable[[float], str]) -> str:
    if row == 0:
        return write(1.0)
    return "0" if row == height - 1 else ""


def _floors(figure: Figure, rows: list[list[str]], fastest: float, cheapest: float) -> None:
    width, height = len(rows[0]), len(rows)
    if figure.speed_floor is not None:
        column = min(width - 1, int(figure.speed_floor / fastest * (width - 1) + 0.5))
        for cells in rows:
            cells[column] = ":"
    if figure.throughput_floor is not None:
        row = min(height - 1, int(figure.throughput_floor / cheapest * (height - 1) + 0.5))
        rows[height - 1 - row] = [":" if cell == " " else cell for cell in rows[height - 1 - row]]
