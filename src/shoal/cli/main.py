"""The command and its subcommands: found by name, run, and every error turned into one sentence and an exit code.

0 finished    1 ended with an error    2 usage    130 interrupted
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from shoal.cli.ui.console import warn
from shoal.errors import InvalidInput, SettingsError, ShoalError
from shoal.version import __version__

FINISHED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
# Of whatever stdout is.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
# Said here and not in the modules, so that `shoal --help` need not import them.
COMMANDS = {
    "demo": "Crawl a small site that ships with Shoal.",
    "crawl": "Crawl from URLs until nothing is left, or resume a crawl.",
    "worker": "Work for the crawls of a store until a signal.",
    "serve": "Answer the HTTP API for the crawls of a store.",
    "submit": "Submit a crawl to the workers of a store, and print its id.",
    "listen": "Take crawl requests from Redis, Kafka or AMQP.",
    "crawls": "List the crawls of a store.",
    "show": "Say how far a crawl is.",
    "pause": "Pause a crawl; nothing of it is lost.",
    "resume": "Let the workers of a store go on with a paused crawl.",
    "stop": "Stop a crawl for good.",
    "delete": "Free what an ended crawl holds in the store.",
    "failed": "List the URLs that failed, or try them again.",
    "hosts": "List hosts; say what is known of one, set its delay, block it.",
    "plan": "Reckon what a crawl would take: days, workers, memory.",
    "doctor": "Check the store and this machine.",
    "export": "Write the pages of an output into another one.",
    "dump": "Write all crawls of a store to a file.",
    "load": "Read what `shoal dump` wrote into an empty store.",
    "completion": "Print what lets a shell complete commands and flags.",
}
# Where a command is, when not as `command` in a module of its name.
_HOMES = {verb: ("commands.state", verb) for verb in ("pause", "resume", "stop", "delete")}
_HOMES["demo"] = ("demo.command", "command")


class Program(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = _HOMES.get(cmd_name, (f"commands.{cmd_name}", "command"))
        command: click.Command = getattr(import_module(f"shoal.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            import difflib

            if near := difflib.get_close_matches(args[0], COMMANDS, 1):
                ctx.fail(f"No such command {args[0]!r}; `shoal {near[0]}` is there.")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without an import of every command: somebody waits with a finger on the key."""
        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"shoal {__version__}")
        ctx.exit()


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Say which it is.")
def program() -> None:
    """Shoal crawls the web with any number of machines as if it were one careful visitor."""


def run(args: list[str] | None = None) -> NoReturn:
    sys.exit(_run(args))


def _run(args: list[str] | None) -> int:
    try:
        code: Any = program.main(args, prog_name="shoal", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "shoal"
        warn(f"{error.format_message().rstrip('.')}; see `{path} --help`.")
        return USAGE
    except click.ClickException as error:
        warn(error.format_message())
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        warn("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        _trace()
        if error.errno not in _DISK:
            return _defect(error)
        warn(f"What is said here cannot be written: {error.strerror}.")
        return FAILED
    except ShoalError as error:
        _trace()
        warn(str(error))
        return USAGE if isinstance(error, (InvalidInput, SettingsError)) else FAILED
    except Exception as error:
        _trace()
        return _defect(error)


def _defect(error: Exception) -> int:
    text = f"This is a defect of Shoal: {type(error).__name__}: {error}."
    warn(f"{text} Please report it, with what SHOAL_DEBUG=1 shows.")
    return FAILED


def _trace() -> None:
    if os.environ.get("SHOAL_DEBUG") == "1":
        traceback.print_exc()
