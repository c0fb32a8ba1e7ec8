"""What ``kgmrf`` can do, one file per group of commands.

A new command is a function, the text of its options (`_options`) and one line in `_COMMANDS`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer
import typer.core

from kgmrf import __version__
from kgmrf.commands._options import takes
from kgmrf.commands.alerts import alerts
from kgmrf.commands.compare import compare
from kgmrf.commands.demo import demo
from kgmrf.commands.diagnose import diagnose
from kgmrf.commands.info import info, warmup
from kgmrf.commands.simulate import simulate
from kgmrf.commands.stabilize import stabilize
from kgmrf.commands.stream import stream
from kgmrf.commands.track import forecast, smooth, track
from kgmrf.commands.video import video

__all__ = ["app", "run"]

_COMMANDS: tuple[Callable[..., Any], ...] = (
    track,
    smooth,
    forecast,
    compare,
    diagnose,
    alerts,
    stream,
    video,
    stabilize,
    demo,
    simulate,
    warmup,
    info,
)


class _Help:
    """``--help`` that does not look as if it took a value."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.metavar = ""
        return option


class _Command(_Help, typer.core.TyperCommand):
    pass


class _Group(_Help, typer.core.TyperGroup):
    pass


app = typer.Typer(
    name="kgmrf",
    cls=_Group,
    help="Track covariance matrices and rotations as they move.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _paragraphs(text: str | None) -> str:
    """A docstring as paragraphs without line breaks, which the terminal wraps itself."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


for _command in _COMMANDS:
    app.command(cls=_Command, help=_paragraphs(_command.__doc__))(_command)


@app.callback()
@takes("Options:\n  --version  Show the version.\n")
def _options(version: bool = False) -> None:
    if version:
        typer.echo(f"kgmrf {__version__}")
        raise typer.Exit


# typer carries its own copy of click in newer versions and uses the installed one in older ones.
_CallError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a wrong call is a ValueError, an abort a KeyboardInterrupt."""
    words = None if arguments is None else list(arguments)
    try:
        code = app(args=words, prog_name="kgmrf", standalone_mode=False)
    except _CallError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
            return 2
        context = getattr(error, "ctx", None)
        name = context.command_path if context is not None else "kgmrf"
        message = error.format_message().rstrip(".").replace("Value error, ", "")
        raise ValueError(f"{message}; see {name} --help") from error
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as error:
        # typer's own word for a reader that went away (| head)
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    if code == 130:  # typer's own word for an interrupt
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0
