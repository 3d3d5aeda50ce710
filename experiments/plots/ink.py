"""Lines, bars and words on a white sheet of pixels, without a library of plots: to load one takes longer than to draw.

A line covers a pixel by how far its middle lies within half the line's width of the nearest point of a segment,

    c = clip(w / 2 + 1/2 - d, 0, 1),

the largest c of all segments of a line, so that joints are round and nothing is dark twice; the pixel goes by c from what it was
to the line's color. Words are drawn last, by Pillow, in the font that matplotlib brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynamics_backends.protocol import Array

DOTS = 150
"""Pixels of an inch."""
PACKED = 2
"""How hard a picture is packed: files are a fifth larger than at the usual 6, and packed in a third of the time."""
POINTS = 72.0
"""Points, the unit of widths and of sizes of words, in an inch."""
PIECE = 16.0
"""Segments longer than this [pixels] are cut, so that the boxes around slanted ones stay small."""
WHITE = 255


class Word(NamedTuple):
    """x, y [pixels] of the point of the text that `anchor` names (Pillow's two letters); size [points]."""

    x: float
    y: float
    text: str
    size: float
    color: str
    anchor: str
    bold: bool
    upward: bool


class Ink:
    """A sheet; width, height [in]. Places on it are in inches from its lower left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = round(DOTS * width), round(DOTS * height)
        self._pixels = np.full((self.height * self.width, 3), WHITE, dtype=np.uint8)
        self._covered = np.zeros(self.height * self.width, dtype=np.float32)
        self._words: list[Word] = []

    def line(self, points: Array, color: str, width: float, dash: float = 0.0, strength: float = 1.0) -> None:
        """A curve through points (n, 2). width, dash [points]: of the line, and of its dashes and gaps where it has such."""
        self.lines([points], color, width, dash, strength)

    def lines(
        self, curves: Iterable[Array], color: str, width: float, dash: float = 0.0, strength: float = 1.0
    ) -> None:
        """Curves of one kind, which are not darker where they meet."""
        segments = [_segments(self._at(np.asarray(c, float)), DOTS * dash / POINTS) for c in curves]
        self._stroke(np.concatenate([np.zeros((0, 2, 2)), *segments]), DOTS * width / POINTS, color, strength)

    def straight(self, ends: Sequence[Array], color: str, width: float, dash: float = 0.0) -> None:
        """Lines along an axis, each (2, 2), in the middle of pixels, so that all are equally sharp."""
        places = [self._at(np.asarray(e, float)) for e in ends]
        segments = [_segments(np.floor(place) + 0.5, DOTS * dash / POINTS, cut=False) for place in places]
        self._stroke(np.concatenate([np.zeros((0, 2, 2)), *segments]), DOTS * width / POINTS, color, 1.0)

    def dots(self, points: Array, color: str, size: float, strength: float = 1.0) -> None:
        """Discs around points (n, 2); size [points]: their diameters."""
        at = self._at(np.asarray(points, float))
        self._stroke(np.stack([at, at], axis=1), DOTS * size / POINTS, color, strength)

    def bar(self, low: Sequence[float], high: Sequence[float], color: str) -> None:
        """A filled box between two corners."""
        (x0, y1), (x1, y0) = (np.round(self._at(np.asarray(corner, float))).astype(int) for corner in (low, high))
        self._pixels.reshape(self.height, self.width, 3)[max(y0, 0) : y1, max(x0, 0) : x1] = _rgb(color)

    def write(
        self,
        place: tuple[float, float],
        text: str,
        size: float,
        color: str = "#000000",
        *,
        anchor: str = "ls",
        bold: bool = False,
        upward: bool = False,
    ) -> None:
        """Words at a place, which is what `anchor` says of them: l, m, r across, and a, m, s (the line they stand on), d."""
        x, y = self._at(np.array(place, dtype=float))
        self._words.append(Word(float(x), float(y), text, size, color, anchor, bold, upward))

    @staticmethod
    def length(text: str, size: float) -> float:
        """How long words are [in]; size [points]."""
        return float(_font(size, False).getlength(text)) / DOTS

    def save(self, path: Path) -> Path:
        """Write the sheet as PNG."""
        from PIL import Image, ImageDraw

        image = Image.fromarray(self._pixels.reshape(self.height, self.width, 3))
        draw = ImageDraw.Draw(image)
        for word in self._words:
            font = _font(word.size, word.bold)
            if word.upward:
                _write_upward(image, word, font)
            else:
                draw.text((word.x, word.y), word.text, fill=word.color, font=font, anchor=word.anchor)
        image.save(path, compress_level=PACKED)
        return path

    def _at(self, places: Array) -> Array:
        """Column and row [pixels] of places (..., 2) [in]."""
        return np.array([0.0, self.height]) + places * (DOTS, -DOTS)

    def _stroke(self, segments: Array, width: float, color: str, strength: float) -> None:
        """Segments (n, 2, 2) and width [pixels]; those of no length are discs."""
        segments = segments[np.isfinite(segments).all(axis=(1, 2))]
        pixel, cover = _coverage(segments, width, self.width, self.height)
        if not len(pixel):
            return
        np.maximum.at(self._covered, pixel, cover.astype(np.float32))
        first, last = pixel.min(), pixel.max()
        touched = first + np.flatnonzero(self._covered[first : last + 1])
        share = strength * self._covered[touched, None]
        self._covered[touched] = 0.0
        before = self._pixels[touched].astype(np.float32)
        self._pixels[touched] = np.round(before + share * (_rgb(color) - before)).astype(np.uint8)


def _segments(points: Array, dash: float, cut: bool = True) -> Array:
    """Segments (n, 2, 2) of a curve through points (m, 2) [pixels], those of its dashes where it has such."""
    step = np.linalg.norm(np.diff(points, axis=0), axis=1)
    if dash and np.isfinite(points).all():
        return _dashes(points, step, dash)
    if not cut:
        return np.stack([points[:-1], points[1:]], axis=1)
    pieces = np.maximum(np.ceil(np.nan_to_num(step) / PIECE), 1).astype(int)
    first = np.repeat(np.arange(len(step)), pieces)
    within = np.arange(len(first)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start, along = points[:-1][first], np.diff(points, axis=0)[first] / pieces[first, None]
    return np.stack([start + within[:, None] * along, start + (within + 1)[:, None] * along], axis=1)


def _dashes(points: Array, step: Array, dash: float) -> Array:
    """Dashes and gaps of one length [pixels] along a curve; a dash across a corner is straight."""
    length = np.concatenate([[0.0], np.cumsum(step)])
    start = np.arange(0.0, max(length[-1], dash), 2.0 * dash)
    ends = np.stack([start, np.minimum(start + dash, length[-1])], axis=1)
    return np.stack([np.interp(ends, length, points[:, i]) for i in (0, 1)], axis=-1)


def _coverage(segments: Array, width: float, columns: int, rows: int) -> tuple[Array, Array]:
    """Pixels and how much segments (n, 2, 2) cover them; a pixel near several segments stands there as often."""
    reach, sizes = 0.5 * width + 0.5, np.array([columns, rows])
    low = np.clip(np.ceil(segments.min(axis=1) - reach - 0.5), 0, sizes).astype(np.int64)
    high = np.clip(np.floor(segments.max(axis=1) + reach - 0.5) + 1, low, sizes).astype(np.int64)
    across, count = high[:, 0] - low[:, 0], (high - low).prod(axis=1)
    which = np.repeat(np.arange(len(segments)), count)
    within = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    row, column = np.divmod(within, across[which])
    column, row = column + low[which, 0], row + low[which, 1]
    along = segments[:, 1] - segments[:, 0]
    x, y = column + 0.5 - segments[which, 0, 0], row + 0.5 - segments[which, 0, 1]
    dx, dy = along[which, 0], along[which, 1]
    share = np.clip((x * dx + y * dy) / np.maximum((along**2).sum(axis=1), 1e-12)[which], 0.0, 1.0)
    cover = np.clip(reach - np.hypot(x - share * dx, y - share * dy), 0.0, 1.0)
    seen = cover > 0.0
    return (row * columns + column)[seen], cover[seen]


def _rgb(color: str) -> Array:
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.float32)


@lru_cache(maxsize=32)
def _font(size: float, bold: bool) -> Any:
    """A font by its size [points]."""
    from PIL import ImageFont

    found = find_spec("matplotlib")
    for folder in found.submodule_search_locations or () if found else ():
        file = Path(folder, "mpl-data", "fonts", "ttf", "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf")
        if file.is_file():
            return ImageFont.truetype(str(file), DOTS * size / POINTS, layout_engine=ImageFont.Layout.BASIC)
    return ImageFont.load_default(DOTS * size / POINTS)


def _write_upward(image: Any, word: Word, font: Any) -> None:
    """Words that are read from below, their middle at the place."""
    from PIL import Image, ImageDraw

    left, top, right, bottom = (int(v) for v in font.getbbox(word.text))
    flat = Image.new("L", (right - left + 2, bottom - top + 2))
    ImageDraw.Draw(flat).text((1 - left, 1 - top), word.text, fill=255, font=font)
    turned = flat.transpose(Image.Transpose.ROTATE_90)
    image.paste(word.color, (round(word.x - 0.5 * turned.width), round(word.y - 0.5 * turned.height)), turned)
