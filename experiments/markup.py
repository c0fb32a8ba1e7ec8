"""Small pieces of HTML: numbers, tags, tables."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from experiments.chart_parts import Figure

MINUS = str.maketrans("-", "−")


def e(text: object) -> str:
    """Text made safe for HTML."""
    return html.escape(str(text), quote=True)


def sentence(text: str) -> str:
    """Text of a verdict, with real minus signs before numbers."""
    return e(re.sub(r"(?<=[\s(^])-(?=[\d.])", "−", text))


def number(value: float | None, digits: int = 3) -> str:
    """A number as people write it: so many significant digits, a real minus sign."""
    if value is None or value != value:
        return "–"
    size = abs(value)
    if size and (size < 1e-4 or size >= 1e5):
        return f"{value:.1e}".translate(MINUS)
    places = digits - 1 - math.floor(math.log10(size)) if size else 0
    return f"{value:.{min(max(places, 0), 4)}f}".translate(MINUS)


def pair(value: tuple[float, float] | None) -> str:
    """Mean and half width of its interval."""
    if value is None:
        return '<span class="pm">not run</span>'
    if value[1] != value[1]:
        return number(value[0])
    return f'{number(value[0])} <span class="pm">± {number(value[1], 2)}</span>'


def tag(word: str, kind: str) -> str:
    """A small coloured label; the word carries the meaning, not the colour."""
    return f'<span class="tag {kind}">{e(word)}</span>'


def table(head: list[str], rows: list[str], kind: str = "") -> str:
    """A table that scrolls sideways by itself on narrow screens."""
    cells = "".join(h if h.startswith("<th") else f"<th>{h}</th>" for h in head)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def row(*cells: str, kind: str = "") -> str:
    """A row of a table; what is no cell yet becomes one."""
    inside = "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in cells)
    return f'<tr class="{kind}">{inside}</tr>' if kind else f"<tr>{inside}</tr>"


def num(value: str | float | None, kind: str = "", digits: int = 3) -> str:
    """A cell with a number, or with words about one."""
    shown = value if isinstance(value, str) else number(value, digits)
    return f'<td class="{f"n {kind}" if kind else "n"}">{shown}</td>'


def n(text: str) -> str:
    """A header cell over numbers."""
    return f'<th class="n">{text}</th>'


def figure(drawn: list[Figure], name: str) -> str:
    """The place of an interactive figure and its caption."""
    found = next((f for f in drawn if f["id"] == name), None)
    if found is None:
        return f'<p id="{name}">{tag("not run", "idle")} figure {e(name)}</p>'
    tall = name in ("occlusion_coasting", "camera_trajectories", "camera_error")
    if tall:
        for panel in found["panels"]:
            panel["tall"] = True
    return (
        f'<figure id="{name}"><div class="panels{" tall" if tall else ""}" data-figure="{name}">'
        f"</div>"
        f"<figcaption><b>{e(found['title'])}.</b> {e(found['caption'])}</figcaption></figure>"
    )


def picture(folder: Path | None, name: str, words: str, caption: str) -> str:
    """A drawn figure inside the page itself: nothing is fetched."""
    path = None if folder is None else folder / f"{name}.png"
    if path is None or not path.exists():
        return f'<p id="{name}">{tag("not run", "idle")} figure {e(name)}</p>'
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return (
        f'<figure id="{name}"><div class="scroll"><img class="drawn" alt="{e(words)}" '
        f'src="data:image/png;base64,{data}"></div><figcaption>{caption}</figcaption></figure>'
    )


def inline(text: str, figures: Collection[str] = ()) -> str:
    """The Markdown of the notes and tables: code, emphasis, and names of figures as links."""
    safe = e(" ".join(text.split()))

    def code(match: re.Match[str]) -> str:
        word = match.group(1)
        shown = f"<code>{word}</code>"
        return f'<a href="#{word}">{shown}</a>' if word in figures else shown

    safe = re.sub(r"`([^`]+)`", code, safe)
    safe = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", safe)
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", safe)


def from_markdown(text: str) -> str:
    """A table in Markdown as HTML, numbers at the right."""
    lines = [line.strip("|").split("|") for line in text.splitlines()]
    head, _, *rows = [[inline(cell) for cell in line] for line in lines]
    signed = [[re.sub(r"(?<!\w)-(?=[\d.])", "−", cell) for cell in line] for line in rows]
    # Numbers do not wrap, words do.
    shown = [
        row(first, *[num(c) if re.fullmatch(r"[−–.\d][−.,\d]*", c) else c for c in rest])
        for first, *rest in signed
    ]
    return table([head[0], *map(n, head[1:])], shown)


def markdown(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in Markdown.

    >>> print(markdown(["who", "mean"], [["ours", "1.0"]]), end="")
    | who | mean |
    | --- | --- |
    | ours | 1.0 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"
