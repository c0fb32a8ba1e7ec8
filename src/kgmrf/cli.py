"""The command ``kgmrf``: one place where errors become one line and an exit code.

The commands themselves are in :mod:`kgmrf.commands`, one file per group. Exit codes: 0 all went
well, 2 the call or its input was wrong, 130 interrupted; anything else is a bug and shows its
traceback, as everything does with ``KGMRF_TRACEBACK=1`` in the environment.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from kgmrf import __version__
from kgmrf._deprecated import MEANS
from kgmrf._extras import remedy

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (``sys.argv`` by default) and return its exit code.

    >>> main(["--version"])
    kgmrf ...
    0
    """
    if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        sys.stdout.write(f"kgmrf {__version__}\n")  # also where no command can be loaded
        return 0
    for screen in (sys.stdout, sys.stderr):
        # Windows into a pipe, or LANG=C: a letter that is not known there becomes a question mark.
        if isinstance(screen, io.TextIOWrapper) and "utf" not in screen.encoding.lower():
            screen.reconfigure(errors="replace")
    try:
        from kgmrf.commands import run

        code = run(_renamed(sys.argv[1:] if arguments is None else arguments))
        # Here and not at exit, where a reader that went away is an error.
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader went away (| head). Nothing more can be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ModuleNotFoundError as error:
        words = remedy(error)
        if words is None or _wants_traceback():
            raise
        return _fail(words, 2)
    except (ValueError, OSError) as error:
        # What checks on input and files raise; both say what is wrong and what helps.
        if _wants_traceback():
            raise
        return _fail(_one_line(error), 2)


def _renamed(arguments: Sequence[str]) -> list[str]:
    """The arguments with the words of now, and a line on standard error for each old one."""
    out = list(arguments)
    for k, word in enumerate(out):
        name, equals, value = word.partition("=")
        old = value if name == "--mean" and equals else word if k and out[k - 1] == "--mean" else ""
        if old in MEANS:
            out[k] = f"--mean={MEANS[old]}" if equals else MEANS[old]
            sys.stderr.write(f"kgmrf: --mean {old} is now --mean {MEANS[old]}\n")
    return out


def _wants_traceback() -> bool:
    return os.environ.get("KGMRF_TRACEBACK", "") not in ("", "0")


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}"
    return " ".join(str(error).split())


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"kgmrf: {message}\n")
    return code
