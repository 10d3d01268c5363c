"""A study's picture as one HTML page: the SVG, the reason for the choice, and the frontier as a table."""

from html import escape

from frontier_tuner.measurement import COST, ITL, TTFT, key
from frontier_tuner.plotting import Figure
from frontier_tuner.plotting.svg import svg

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #24292f; max-width: 980px; margin: 2rem auto; padding: 0 1rem }
svg { width: 100%; height: auto }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 14px }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #e4e7eb }
th:last-child, td:last-child { text-align: left }
tr.chosen { background: #fbe9ea }
"""
_COLUMNS = (
    ("TTFT p95 ms", key(TTFT, 95), 1000.0),
    ("ITL p95 ms", key(ITL, 95), 1000.0),
    ("cost/Mtok", COST, 1.0),
)


def page(figure: Figure, title: str = "Efficient frontier") -> str:
    """Return the figure as one self-contained HTML document."""
    failed = "".join(f"<li><b>{escape(name)}</b>: {escape(why)}</li>" for name, why in figure.failed)
    return "".join(
        (
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            svg(figure, title),
            f"<h2>{'Selection' if figure.selection.point else 'No feasible point'}</h2>",
            f"<p>{escape(figure.selection.message)}</p>",
            f'<h2>Frontier</h2><div class="wide">{_table(figure)}</div>',
            f"<h2>Without a point</h2><ul>{failed}</ul>" if failed else "",
            "</body></html>",
        )
    )


def _table(figure: Figure) -> str:
    names = {curve.points[0].configuration: curve.label for curve in figure.curves}
    titles = ("trial", "load", "tokens/s/user", "tokens/s/GPU", *(title for title, _, _ in _COLUMNS), "configuration")
    rows = ["<tr>" + "".join(f"<th>{escape(title)}</th>" for title in titles) + "</tr>"]
    chosen = figure.selection.point
    for point in figure.members:
        values = [(point.measured.value(name), factor) for _, name, factor in _COLUMNS]
        cells = [
            str(point.trial),
            str(point.load),
            f"{point.speed:.4g}",
            f"{point.throughput:.4g}",
            *("" if value is None else f"{value * factor:.4g}" for value, factor in values),
            names[point.configuration],
        ]
        mark = ' class="chosen"' if point == chosen else ""
        rows.append(f"<tr{mark}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(rows)}</table>"
