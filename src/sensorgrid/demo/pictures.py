"""Pictures without a plotting library: maps as PNG, the rest as SVG that follows the page's light or dark colours."""

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import cos, hypot, pi, sin

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Colours = npt.NDArray[np.uint8]
"""[256, 3]"""


def _palette(*anchors: str) -> Colours:
    """256 colours through some anchors, as #rrggbb."""
    known = np.array([[int(a[i : i + 2], 16) for i in (1, 3, 5)] for a in anchors], float)
    at = np.linspace(0, len(known) - 1, 256)
    return np.stack([np.interp(at, np.arange(len(known)), known[:, c]) for c in range(3)], 1).astype(np.uint8)


HEAT = _palette("#1d2671", "#2b6cb5", "#4fb3bf", "#b8e0c8", "#fdf3bd", "#f9b45c", "#e4572e", "#8c1127")
"""cold to hot"""
DEPTH = _palette("#2d0b45", "#6a2380", "#b04a8a", "#e58b7f", "#f6cf9b", "#d8e8b0", "#6fb79a", "#21657a")
"""low to high"""
CONTRAST = _palette("#23407f", "#5b8fc7", "#c4dcec", "#fbfaf5", "#f3cdb3", "#d4765a", "#8e1f2f")
"""too low, right, too high"""
_COAST = np.array([30, 36, 48], np.uint8)


def png(indices: npt.NDArray[np.uint8], colours: Colours) -> bytes:
    """A picture with a palette; the first row is at the top."""
    height, width = indices.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), indices], axis=1).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"PLTE", colours.tobytes())
        + chunk(b"IDAT", zlib.compress(lines, 9))
        + chunk(b"IEND", b"")
    )


def data_uri(picture: bytes) -> str:
    """For ``<img src>``."""
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def map_png(
    field: Floats, low: float, high: float, colours: Colours, land: Floats | None = None, scale: int = 5
) -> bytes:
    """A field [row, column], row 0 in the south, smoothed to `scale` times its size; `land` draws coasts."""
    fine = _enlarged(np.asarray(field, float), scale)
    share = np.clip((fine - low) / max(high - low, 1e-12), 0, 1)
    indices = (1 + np.nan_to_num(share) * 254).astype(np.uint8)
    palette = colours.copy()
    palette[0] = _COAST
    if land is not None:
        ground = land > 0.5
        edge = np.zeros_like(ground)
        edge[:, 1:] |= ground[:, 1:] != ground[:, :-1]
        edge[1:] |= ground[1:] != ground[:-1]
        indices[edge] = 0
    return png(indices[::-1], palette)


def _enlarged(field: npt.NDArray[np.float64], scale: int) -> npt.NDArray[np.float64]:
    """Bilinear, around the earth along x."""
    height, width = field.shape
    x, y = (np.arange(n * scale) / scale - 0.5 + 0.5 / scale for n in (width, height))
    x0, y0 = np.floor(x).astype(int), np.clip(np.floor(y).astype(int), 0, height - 2)
    fx, fy = (x - x0)[None, :], np.clip(y - y0, 0, 1)[:, None]
    left, right = field[:, x0 % width], field[:, (x0 + 1) % width]
    rows = left * (1 - fx) + right * fx
    return np.asarray(rows[y0] * (1 - fy) + rows[y0 + 1] * fy)


def stripe(colours: Colours) -> str:
    """The colours of a map as a CSS gradient."""
    stops = ", ".join("#{:02x}{:02x}{:02x}".format(*colours[i]) for i in range(0, 256, 17))
    return f"linear-gradient(to right, {stops})"


# -- charts

WIDTH, HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 30


def nice_step(span: float, parts: int = 4) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts a span into about so many parts.

    >>> nice_step(7.3), nice_step(260_000)
    (2.0, 100000.0)
    """
    raw = max(span, 1e-9) / parts
    power = 10 ** np.floor(np.log10(raw))
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= raw))


class Chart:
    """Axes with a grid; things are drawn into it by value."""

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        x_title: str,
        show_y: Callable[[float], str],
        title: str,
    ) -> None:
        self.x0, self.x1 = x[0], max(x[1], x[0] + 1e-9)
        self.y0, self.y1 = y[0], max(y[1], y[0] + 1e-9)
        self._parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
            f"<title>{escape(title)}</title>"
        ]
        step = nice_step(self.y1 - self.y0)
        for value in np.arange(self.y0, self.y1 + step / 2, step):
            y_at = self.py(float(value))
            self._parts.append(f'<path class="rule" d="M{_LEFT} {y_at:.1f}H{WIDTH - _RIGHT}"/>')
            self._parts.append(
                f'<text class="small end" x="{_LEFT - 6}" y="{y_at + 4:.1f}">{escape(show_y(float(value)))}</text>'
            )
        step = nice_step(self.x1 - self.x0, 6)
        for value in np.arange(np.ceil(self.x0 / step) * step, self.x1 + step / 4, step):
            x_at = self.px(float(value))
            self._parts.append(f'<text class="small mid" x="{x_at:.1f}" y="{HEIGHT - 12}">{value:g}</text>')
        self._parts.append(
            f'<text class="small end" x="{WIDTH - _RIGHT}" y="{HEIGHT - 1}">{escape(x_title)}</text>'
        )

    def px(self, value: float) -> float:
        """Where a value lies along x."""
        return _LEFT + (value - self.x0) / (self.x1 - self.x0) * (WIDTH - _LEFT - _RIGHT)

    def py(self, value: float) -> float:
        """Where a value lies along y."""
        return HEIGHT - _BOTTOM - (value - self.y0) / (self.y1 - self.y0) * (HEIGHT - _TOP - _BOTTOM)

    def line(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line; `kind` is its class in the page's style."""
        if points:
            path = "L".join(f"{self.px(x):.1f} {self.py(y):.1f}" for x, y in points)
            self._parts.append(f'<path class="line {kind}" d="M{path}"/>')

    def area(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """A line with what is below it filled."""
        if points:
            path = "L".join(f"{self.px(x):.1f} {self.py(y):.1f}" for x, y in points)
            base = self.py(self.y0)
            self._parts.append(
                f'<path class="area {kind}" d="M{self.px(points[0][0]):.1f} {base:.1f}L{path}'
                f'L{self.px(points[-1][0]):.1f} {base:.1f}Z"/>'
            )
            self.line(points, kind)

    def dots(self, points: Sequence[tuple[float, float]], kind: str) -> None:
        """Many points as one path."""
        if points:
            path = "".join(f"M{self.px(x):.1f} {self.py(y):.1f}h0" for x, y in points)
            self._parts.append(f'<path class="dots {kind}" d="{path}"/>')

    def mark_x(self, value: float, text: str, kind: str) -> None:
        """A moment, with a word."""
        x, right = self.px(value), self.px(value) > WIDTH * 0.75
        self._parts.append(
            f'<path class="mark {kind}" d="M{x:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
            f'<text class="small {kind}{" end" if right else ""}" x="{x + (-5 if right else 5):.1f}"'
            f' y="{_TOP + 10}">{escape(text)}</text>'
        )

    def mark_y(self, value: float, text: str, kind: str) -> None:
        """A level, with a word."""
        if self.y0 <= value <= self.y1:
            y = self.py(value)
            self._parts.append(
                f'<path class="mark {kind}" d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}"/>'
                f'<text class="small end {kind}" x="{WIDTH - _RIGHT}" y="{y - 4:.1f}">{escape(text)}</text>'
            )

    def svg(self) -> str:
        """The drawing."""
        return "".join([*self._parts, "</svg>"])


def network_svg(
    brokers: Sequence[int],
    clients: Mapping[int, int],
    flows: Mapping[tuple[int, int], int],
    killed: int | None,
    show: Callable[[float], str],
) -> str:
    """Brokers in a circle, their clients as dots outside, and what flowed between them as arcs."""
    size, radius = 560.0, 170.0
    middle = size / 2
    at = {
        b: (
            middle + radius * sin(2 * pi * n / len(brokers)),
            middle - radius * cos(2 * pi * n / len(brokers)),
        )
        for n, b in enumerate(brokers)
    }
    most = max(flows.values(), default=1)
    parts = [
        f'<svg class="network" viewBox="0 0 {size:g} {size:g}" role="img" aria-label="streams between brokers">'
        "<title>streams between brokers</title>"
    ]
    for (a, b), count in sorted(flows.items(), key=lambda item: item[1]):
        if a not in at or b not in at or not count:
            continue
        (xa, ya), (xb, yb) = at[a], at[b]
        # Bent to its own side, so that both directions can be seen.
        xm = (xa + xb) / 2 + (yb - ya) * 0.18 + (middle - (xa + xb) / 2) * 0.25
        ym = (ya + yb) / 2 - (xb - xa) * 0.18 + (middle - (ya + yb) / 2) * 0.25
        length = hypot(xb - xm, yb - ym)
        ux, uy = (xb - xm) / length, (yb - ym) / length
        ex, ey = xb - ux * 32, yb - uy * 32
        width = 0.8 + 7 * (count / most) ** 0.7
        kind = " hit" if killed in (a, b) else ""
        parts.append(
            f'<path class="flow{kind}" stroke-width="{width:.1f}" d="M{xa:.1f} {ya:.1f}Q{xm:.1f} {ym:.1f}'
            f' {ex:.1f} {ey:.1f}"><title>broker {a} to {b}: {escape(show(count))}</title></path>'
            f'<path class="head{kind}" d="M{ex + ux * 9:.1f} {ey + uy * 9:.1f}l{-ux * 10 - uy * 5:.1f}'
            f' {-uy * 10 + ux * 5:.1f}l{uy * 10:.1f} {-ux * 10:.1f}z"/>'
        )
    for n, broker in enumerate(brokers):
        x, y = at[broker]
        angle = 2 * pi * n / len(brokers)
        many = clients.get(broker, 0)
        for k in range(many):
            turn = angle + (k - (many - 1) / 2) * 0.13
            cx, cy = middle + (radius + 62) * sin(turn), middle - (radius + 62) * cos(turn)
            parts.append(f'<path class="leash" d="M{x:.1f} {y:.1f}L{cx:.1f} {cy:.1f}"/>')
            parts.append(f'<circle class="client" cx="{cx:.1f}" cy="{cy:.1f}" r="5"/>')
        kind = " hit" if broker == killed else ""
        parts.append(f'<circle class="broker{kind}" cx="{x:.1f}" cy="{y:.1f}" r="22"/>')
        parts.append(f'<text class="number mid" x="{x:.1f}" y="{y + 6:.1f}">{broker}</text>')
    return "".join([*parts, "</svg>"])
