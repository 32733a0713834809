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
    slopes: Floats,
    slope_spreads: Floats,
    mu: Floats,
    variance: Floats,
    unrest: Floats,
) -> None:
    """Fill `mu`, `variance` and `unrest` (all (m,)) from observations and, for each point, its neighbours.

    `index` (m, k) is ascending within a row, -1 for none; `reach` (m,) is the distance of the nearest observation
    that is not among them, infinite if there is none. `heights` (n, c) and `point_heights` (m, c) are the covariates,
    NaN where they are not known; c may be 0. `model` is sill, length, whether the family is Matérn, mean, spread;
    `slopes` and `slope_spreads` (c,) are what values are expected to follow each covariate by.
    """
    size, dimensions = index.shape[1], positions.shape[1]
    sill, length, matern = model[0], model[1], model[2]
    mean, spread = model[3], model[4]
    sill2 = sill * sill
    columns = len(slopes)
    base, work = np.empty((size, size)), np.empty((size, size))
    towards, ones, rest = np.empty(size), np.empty(size), np.empty(size)
    tilt, middle, known = np.empty((columns, size)), np.empty(columns), np.empty(columns)
    # The drift: a mean and a slope for each covariate. Their normal equations, right side, and what the point lacks.
    normal, drift, lack = np.empty((columns + 1, columns + 1)), np.empty(columns + 1), np.empty(columns + 1)
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
        total = 0.0
        for q in range(columns):
            middle[q], known[q] = 0.0, 0.0
        for a in range(count):
            fade[a] = 1.0
            if distance[a] > start:
                excess = _FADED
                if edge - distance[a] > (distance[a] - start) / _FADED:
                    excess = (distance[a] - start) / (edge - distance[a])
                fade[a] = 1.0 + excess * excess
            total += 1.0 / fade[a]
            for q in range(columns):
                height = heights[index[m, first + a], q]
                if height == height:
                    middle[q] += height / fade[a]
                    known[q] += 1.0 / fade[a]
        for q in range(columns):
            if known[q] > 0.0:
                middle[q] /= known[q]
        for a in range(count):
            i = index[m, first + a]
            for b in range(a):
                work[a, b] = base[a, b]
            work[a, a] = sill2 + noise[i] + (fade[a] - 1.0) * (noise[i] + scale)
            towards[a] = sill2 * _alike(distance[a], length, matern)
            ones[a] = 1.0
            rest[a] = values[i] - mean
            for q in range(columns):
                tilt[q, a] = 0.0
                if heights[i, q] == heights[i, q]:
                    tilt[q, a] = heights[i, q] - middle[q]
                rest[a] -= slopes[q] * tilt[q, a]
        # Factor, and solve for all right sides on the way: column by column, so that no sum is reordered.
        explained, scatter, value, row, level, cross = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(count):
            pivot = 1.0 / np.sqrt(work[j, j])
            c, o, r = towards[j] * pivot, ones[j] * pivot, rest[j] * pivot
            explained += c * c
            row += o * o
            cross += o * c
            level += o * r
            scatter += r * r
            value += c * r
            towards[j], ones[j], rest[j] = c, o, r
            for a in range(j + 1, count):
                column[a] = work[a, j] * pivot
                towards[a] -= column[a] * c
                ones[a] -= column[a] * o
                rest[a] -= column[a] * r
            for q in range(columns):
                tilt[q, j] *= pivot
                slant, beside, t = tilt[q, j + 1 : count], column[j + 1 : count], tilt[q, j]
                for a in range(len(slant)):
                    slant[a] -= beside[a] * t
            for a in range(j + 1, count):
                # Slices that are counted from 0: the compiler then works on several elements at once.
                line, beside, factor = work[a, j + 1 : a + 1], column[j + 1 : a + 1], column[a]
                for b in range(len(line)):
                    line[b] -= factor * beside[b]
        normal[0, 0], drift[0], lack[0] = row + 1.0 / (spread * spread), level, 1.0 - cross
        expected = mean
        for q in range(columns):
            level, cross, row = 0.0, 0.0, 0.0
            for j in range(count):
                t = tilt[q, j]
                row += t * ones[j]
                level += t * rest[j]
                cross += t * towards[j]
            normal[q + 1, 0], drift[q + 1], lack[q + 1] = row, level, -cross
            for other in range(q + 1):
                row = 0.0
                for j in range(count):
                    row += tilt[q, j] * tilt[other, j]
                normal[q + 1, other + 1] = row
            normal[q + 1, q + 1] += 1.0 / (slope_spreads[q] * slope_spreads[q])
            if known[q] > 0.0 and point_heights[m, q] == point_heights[m, q]:
                high = point_heights[m, q] - middle[q]
                lack[q + 1] += high
                expected += slopes[q] * high
        correction, spare, fitted = 0.0, 0.0, 0.0
        for q in range(columns + 1):  # the same factor and solution for the drift
            pivot = 1.0 / np.sqrt(normal[q, q])
            d, k = drift[q] * pivot, lack[q] * pivot
            correction += d * k
            spare += k * k
            fitted += d * d
            for later in range(q + 1, columns + 1):
                share = normal[later, q] * pivot
                drift[later] -= share * d
                lack[later] -= share * k
                normal[later, q] = share
                for other in range(q + 1, later + 1):
                    normal[later, other] -= share * normal[other, q]
        mu[m] = expected + correction + value
        scatter -= fitted
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
