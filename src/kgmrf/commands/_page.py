"""What reports have in common: one page of HTML that needs no other file."""

from __future__ import annotations

import base64
from html import escape
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgmrf.plots import WIDTH, style
from kgmrf.plots._style import NARROW_WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_report(path: Path) -> None:
    """Refuse a report that cannot be written, before any work is done."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report ends in .html, got {str(path)!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} for the report does not exist")
    if find_spec("matplotlib") is None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")


def picture(words: str, draw: Any) -> str:
    """A picture for wide screens and one for narrow ones, in the page itself; draw(width)."""
    wide, narrow = (_encoded(draw(width)) for width in (WIDTH, NARROW_WIDTH))
    return (
        f'<picture><source media="(max-width: 640px)" srcset="{narrow}">'
        f'<img src="{wide}" alt="{escape(words)}"></picture>'
    )


def _encoded(figure: Figure) -> str:
    out = BytesIO()
    with style():
        figure.savefig(out, format="png", metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def table(heads: list[str], rows: list[list[str]], kind: str = "") -> str:
    """A table of words; kind "words": the first column is broken into lines late."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="table {kind}"><table><thead><tr>'
        f"{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(title: str, about: list[tuple[str, str]]) -> str:
    """The head of a page: a title and facts with their names."""
    items = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in about)
    return f"<header><h1>{escape(title)}</h1><dl>{items}</dl></header>"


STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 960px; padding: 16px; color: #222; background: #fff;
  font: 16px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; }
h3 { font-size: 1rem; font-weight: 500; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 8px 16px; }
dt { color: #666; font-size: .8rem; } dd { margin: 0; font-weight: 600; }
img { width: 100%; height: auto; display: block; }
.table { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 14px 3px 0; text-align: right; border-bottom: 1px solid #e4e4e4; }
th:first-child, td:first-child { text-align: left; min-width: 3.5rem; }
.words td:first-child { min-width: 8rem; }
.stamps td { white-space: nowrap; } .stamps :nth-child(2) { text-align: left; }
th { color: #666; font-weight: 500; }
footer { color: #666; font-size: .85rem; margin: 2rem 0; }
"""


def whole_page(title: str, parts: list[str]) -> str:
    """A page of these parts that needs no other file."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )
