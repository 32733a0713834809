"""Kriging's inner loop, compiled: one Cholesky factor per point.

All compiled functions of the kernels stand in this one file: Numba's cache looks at the file of a function and
not at what it calls elsewhere. No reordering of sums is allowed (no `fastmath`), so a point has the same bits in
every process, whatever points are estimated along with it.
"""

import numpy as np
import numpy.typing as npt

from sensorgrid.index.jit import jit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

TAPER_FROM = 0.85
"""of the distance of the first observation that is not used: from there on observations lose their weight"""
_TIED = 1e-9
"""neighbours whose distances differ by less are equally far"""
_FADED = 1e6
"""bound of what the taper does, as a standard deviation"""


@jit
def krige(
    positions: Floats,
    values: Floats,
    noise: Floats,
    heights: Floats,
    index: Indices,
    reach: Floats,
    points: Floats,
    point_heights: Floats,
    model: Floats,
    mu: Floats,
    variance: Floats,
    unrest: Floats,
) -> None:
    """Fill `mu`, `variance` and `unrest` (all (m,)) from observations and, for each point, its neighbours.

    `index` (m, k) is ascending within a row, -1 for none; `reach` (m,) is the distance of the nearest observation
    that is not among them, infinite if there is none. `heights` has no element if there is no covariate. `model` is
    sill, length, whether the family is Matérn, mean, spread, slope, spread of the slope.
    """
    size, dimensions = index.shape[1], positions.shape[1]
    sill, length, matern = model[0], model[1], model[2]
    mean, spread, slope, slope_spread = model[3], model[4], model[5], model[6]
    sill2 = sill * sill
    sloped = len(heights) > 0
    base, work = np.empty((size, size)), np.empty((size, size))
    towards, ones, tilt, rest = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    distance, fade, column = np.empty(size), np.empty(size), np.empty(size)
    for m in range(len(points)):
        first = 0
        while first < size and index[m, first] < 0:
            first += 1
        count = size - first
        if count == 0:
            mu[m], variance[m], unrest[m] = mean, spread * spread, 1.0
            continue
        fresh = m == 0
        if not fresh:
            for a in range(size):
                if index[m, a] != index[m - 1, a]:
                    fresh = True
                    break
        nearest = np.inf
        for a in range(count):
            i = index[m, first + a]
            square = 0.0
            for axis in range(dimensions):
                step = positions[i, axis] - points[m, axis]
                square += step * step
            distance[a] = np.sqrt(square)
            if distance[a] < nearest:
                nearest = distance[a]
            if fresh:
                for b in range(a):
                    j = index[m, first + b]
                    square = 0.0
                    for axis in range(dimensions):
                        step = positions[i, axis] - positions[j, axis]
                        square += step * step
                    base[a, b] = sill2 * _alike(np.sqrt(square), length, matern)
        # The taper: an observation has no weight at the moment at which another takes its place.
        edge = reach[m]
        tapered = edge < np.inf and edge - nearest > _TIED * edge
        start = max(TAPER_FROM * edge, 0.5 * (edge + nearest)) if tapered else np.inf
        # In units of what varies within the edge: the sill of a smooth field with a long reach says nothing here.
        scale = sill2 * (1.0 - _alike(edge, length, matern)) if tapered else 0.0
        total, middle, known = 0.0, 0.0, 0.0
        for a in range(count):
            fade[a] = 1.0
            if distance[a] > start:
                excess = _FADED
                if edge - distance[a] > (distance[a] - start) / _FADED:
                    excess = (distance[a] - start) / (edge - distance[a])
                fade[a] = 1.0 + excess * excess
            total += 1.0 / fade[a]
            if sloped:
                height = heights[index[m, first + a]]
                if height == height:
                    middle += height / fade[a]
                    known += 1.0 / fade[a]
        if known > 0.0:
            middle /= known
        for a in range(count):
            i = index[m, first + a]
            for b in range(a):
                work[a, b] = base[a, b]
            work[a, a] = sill2 + noise[i] + (fade[a] - 1.0) * (noise[i] + scale)
            towards[a] = sill2 * _alike(distance[a], length, matern)
            ones[a] = 1.0
            tilt[a] = 0.0
            if sloped and heights[i] == heights[i]:
                tilt[a] = heights[i] - middle
            rest[a] = values[i] - mean - slope * tilt[a]
        # Factor, and solve for the four right sides on the way: column by column, so that no sum is reordered.
        explained, row, cross, level = 0.0, 0.0, 0.0, 0.0
        row_tilt, tilt2, cross_tilt, level_tilt, scatter, value = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(count):
            pivot = 1.0 / np.sqrt(work[j, j])
            c, o, t, r = towards[j] * pivot, ones[j] * pivot, tilt[j] * pivot, rest[j] * pivot
            explained += c * c
            row += o * o
            cross += o * c
            level += o * r
            scatter += r * r
            value += c * r
            row_tilt += o * t
            tilt2 += t * t
            cross_tilt += t * c
            level_tilt += t * r
            for a in range(j + 1, count):
                column[a] = work[a, j] * pivot
                towards[a] -= column[a] * c
                ones[a] -= column[a] * o
                tilt[a] -= column[a] * t
                rest[a] -= column[a] * r
            for a in range(j + 1, count):
                # Slices that are counted from 0: the compiler then works on several elements at once.
                line, other, factor = work[a, j + 1 : a + 1], column[j + 1 : a + 1], column[a]
                for b in range(len(line)):
                    line[b] -= factor * other[b]
        row += 1.0 / (spread * spread)
        missing = 1.0 - cross
        if sloped:
            high = 0.0
            if known > 0.0 and point_heights[m] == point_heights[m]:
                high = point_heights[m] - middle
            tilt2 += 1.0 / (slope_spread * slope_spread)
            missing_tilt = high - cross_tilt
            determinant = row * tilt2 - row_tilt * row_tilt
            b0 = (tilt2 * level - row_tilt * level_tilt) / determinant
            b1 = (row * level_tilt - row_tilt * level) / determinant
            mu[m] = mean + slope * high + b0 * missing + b1 * missing_tilt + value
            spare = tilt2 * missing * missing - 2.0 * row_tilt * missing * missing_tilt
            spare = (spare + row * missing_tilt * missing_tilt) / determinant
            scatter -= b0 * level + b1 * level_tilt
        else:
            b0 = level / row
            mu[m] = mean + b0 * missing + value
            spare = missing * missing / row
            scatter -= b0 * level
        variance[m] = max(sill2 - explained + spare, 0.0)
        unrest[m] = max(scatter, 0.0) / total


@jit
def _alike(distance: float, length: float, matern: float) -> float:
    """Correlation at a distance; see `covariance.correlation`."""
    if matern > 0.0:
        scaled = distance * (1.7320508075688772 / length)
        return float(np.exp(-scaled) * (1.0 + scaled))
    return float(np.exp(-distance / length))


@jit
def cover(
    positions: Floats,
    age_s: Floats,
    index: Indices,
    points: Floats,
    reach: float,
    within: npt.NDArray[np.uint8],
    newest_s: npt.NDArray[np.float32],
) -> None:
    """Fill `within` and `newest_s` (both (m,)): of each point's neighbours, how many are within reach, and the age
    of the newest of them; NaN where there is none."""
    count, dimensions, far = index.shape[1], positions.shape[1], reach * reach
    for m in range(len(points)):
        found, newest = 0, np.inf
        for a in range(count):
            i = index[m, a]
            if i < 0:
                continue
            square = 0.0
            for axis in range(dimensions):
                step = positions[i, axis] - points[m, axis]
                square += step * step
            if square <= far:
                found += 1
                newest = min(newest, age_s[i])
        within[m] = found
        newest_s[m] = newest if found else np.nan
