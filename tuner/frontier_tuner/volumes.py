"""The volume that points dominate, exactly: a sweep in two dimensions, slices of one dimension less in more.

Slicing (L. While, P. Hingston, L. Barone, S. Huband, A faster algorithm for calculating hypervolume, 2006) takes
O(n^(d-1)) steps for n points in d dimensions: meant for the few axes and few hundred points of a study.
"""

from collections.abc import Iterable, Sequence


def volume(points: Iterable[Sequence[float]], reference: Sequence[float]) -> float:
    """Return the volume between points and a reference, all axes maximised.

    Args:
        points: Coordinates; points that do not exceed the reference on every axis add nothing.
        reference: The worst acceptable coordinates.

    Raises:
        ValueError: A point has another number of axes than the reference.
    """
    extents = []
    for point in points:
        extent = tuple(value - floor for value, floor in zip(point, reference, strict=True))
        if all(length > 0 for length in extent):
            extents.append(extent)
    return _volume(extents, len(reference))


def _volume(extents: Sequence[tuple[float, ...]], axes: int) -> float:
    if not extents or axes == 0:
        return 0.0
    if axes == 1:
        return max(extent[0] for extent in extents)
    if axes == 2:  # noqa: PLR2004 - the plane has its own way
        return _area(extents)
    ordered = sorted(extents, key=lambda extent: extent[axes - 1], reverse=True)
    total = 0.0
    for position, extent in enumerate(ordered):
        below = ordered[position + 1][axes - 1] if position + 1 < len(ordered) else 0.0
        if extent[axes - 1] > below:
            total += (extent[axes - 1] - below) * _volume(ordered[: position + 1], axes - 1)
    return total


def _area(extents: Sequence[tuple[float, ...]]) -> float:
    area, height = 0.0, 0.0
    for extent in sorted(extents, key=lambda extent: (-extent[0], -extent[1])):
        if extent[1] > height:
            area += extent[0] * (extent[1] - height)
            height = extent[1]
    return area
