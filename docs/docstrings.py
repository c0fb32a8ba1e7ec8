"""Docstrings as pages show them (an extension of griffe, which reads the source for mkdocstrings).

In the source the arguments of a public class or function stand in a section "Parameters", as
numpydoc has it; those of methods also in running text, ``name: what it is``. An example is a
doctest. Here the explanations become a list and the examples code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")
SECTION = re.compile(r"^(Parameters|References|Examples)\n-+\n(.*?)(?=\n\n|\Z)", re.M | re.S)
ENTRY = re.compile(r"^(\S.*?)(?: : (.*))?\n((?:    .*(?:\n|\Z))*)", re.M)
DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.M | re.S)


def _section(found: re.Match[str]) -> str:
    """A section of numpydoc in Markdown; examples need no title."""
    title, body = found.groups()
    if title == "Examples":
        return body
    if title == "Parameters":
        body = ENTRY.sub(_entry, body).rstrip()
    return f"**{title}**\n\n{body}"


def _entry(found: re.Match[str]) -> str:
    names, kind, text = found.groups()
    names = names.replace("*", r"\*").replace(", ", "**, **")
    return f"- **{names}**{f' ({kind})' if kind else ''}: {text.strip()}\n"


def readable(text: str, arguments: list[str]) -> str:
    """The docstring in Markdown.

    >>> print(readable("x + y\\n\\nfirst: x. second: y,\\nboth.", ["first", "second"]))
    x + y
    <BLANKLINE>
    - **first**: x.
    - **second**: y,
      both.
    >>> section = "Parameters\\n----------\\n{} : int, default 1\\n    One.\\n**rest\\n    More."
    >>> print(readable("x\\n\\n" + section.format("first, second"), []))
    x
    <BLANKLINE>
    **Parameters**
    <BLANKLINE>
    - **first**, **second** (int, default 1): One.
    - **\\*\\*rest**: More.
    """
    text = SECTION.sub(_section, text)
    text = ROLE.sub(r"`\1`", text)
    text = DOCTEST.sub(lambda found: f"```pycon\n{found.group()}\n```", text)
    if not arguments:
        return text
    words = "|".join(re.escape(name) for name in arguments)
    # One or several arguments and a colon, at the start of a line or of a sentence.
    start = re.compile(rf"(?:^|(?<=[.;] ))((?:{words})(?:, (?:{words}))*): ", re.M)
    paragraphs = text.split("\n\n")
    for k, paragraph in enumerate(paragraphs):
        if start.match(paragraph) and not paragraph.startswith("```"):
            items = start.sub(r"\n- **\1**: ", paragraph).strip()
            lines = [line.rstrip() for line in items.splitlines() if line.strip()]
            paragraphs[k] = "\n".join(
                line if line.startswith("- **") else f"  {line}" for line in lines
            )
    return "\n\n".join(paragraphs)


class Readable(griffe.Extension):
    """Rewrites every docstring once it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is None:
            return
        names = [p.name for p in getattr(obj, "parameters", [])]
        if obj.is_class:
            for method in ("__init__", "__new__"):
                if method in obj.members:
                    names += [p.name for p in getattr(obj.members[method], "parameters", [])]
            names += [name for name in obj.members if obj.members[name].is_attribute]
        names = [name for name in names if not name.startswith("_") and name != "self"]
        obj.docstring.value = readable(obj.docstring.value, names)
