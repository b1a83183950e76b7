"""The `shoal` program: dispatch to a command, and every error as one sentence and an exit code.

0 finished    1 failed    2 usage error    130 interrupted
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

from shoal.cli.ui.console import fail, set_quiet, warn
from shoal.errors import InvalidInput, SettingsError, ShoalError
from shoal.version import __version__

FINISHED, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
# Errors of the disk that stdout is written to.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
# The texts are here and not in the modules, so that `shoal --help` does not import the modules.
COMMANDS = {
    "demo": "Crawl four small sites that ship with Shoal.",
    "crawl": "Crawl from URLs until nothing is left, or resume a crawl.",
    "fetch": "Fetch one page and show what a crawl would see.",
    "shell": "Fetch one page and open a Python prompt with it.",
    "new": "Write a spider and its test from a template.",
    "worker": "Run workers for the crawls of a store.",
    "serve": "Run the HTTP API server.",
    "health": "Check a worker or server on this machine.",
    "submit": "Submit a crawl to the workers of a store, and print its id.",
    "listen": "Submit crawl requests from Redis, Kafka or AMQP.",
    "crawls": "List the crawls of a store.",
    "show": "Show the state and counts of a crawl.",
    "explain": "Explain why a crawl visits or skips a URL.",
    "pause": "Pause a crawl.",
    "resume": "Resume a paused crawl.",
    "stop": "Stop a crawl permanently.",
    "delete": "Delete an ended crawl from the store.",
    "change": "Change the options of an open crawl.",
    "touch": "Revisit changed pages of a perpetual crawl soon.",
    "changes": "List the changes that a crawl has found.",
    "failed": "List the URLs that failed, or retry them.",
    "revisit": "Visit URLs of a crawl again now.",
    "forget": "Forget that a crawl has seen URLs.",
    "hosts": "List hosts, or show, slow down or block one.",
    "plan": "Estimate time, workers and memory for a crawl.",
    "doctor": "Check the store and this machine.",
    "export": "Copy the pages of an output to another output.",
    "dump": "Write all crawls of a store to a file.",
    "load": "Load a dump into an empty store.",
    "completion": "Print the shell completion script.",
}
# Commands that are not `command` in a module of their name.
_LOCATIONS = {verb: ("commands.state", verb) for verb in ("pause", "resume", "stop", "delete")}
_LOCATIONS |= {verb: ("commands.known_urls", verb) for verb in ("revisit", "forget")}
_LOCATIONS["demo"] = ("demo.command", "command")


class Program(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = _LOCATIONS.get(cmd_name, (f"commands.{cmd_name}", "command"))
        command: click.Command = getattr(import_module(f"shoal.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            import difflib

            from shoal.cli.synonyms import command_for

            near = command_for(args[0]) or next(iter(difflib.get_close_matches(args[0], COMMANDS, 1)), "")
            if near:
                ctx.fail(f"No such command {args[0]!r}; did you mean `shoal {near}`?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing every command."""
        items = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"shoal {__version__}")
        ctx.exit()


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version and exit."
)
def program() -> None:
    """Shoal is a distributed web crawler: any number of machines behave like one polite visitor."""


def run(args: list[str] | None = None) -> NoReturn:
    sys.exit(_run(args))


def _run(args: list[str] | None) -> int:
    set_quiet(False)
    try:
        code: Any = program.main(args, prog_name="shoal", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.NoSuchOption as error:
        fail(_unknown_option(error))
        return USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "shoal"
        text = error.format_message().rstrip(".")
        fail(f"{text}{'' if text.endswith('?') else '.'} See `{path} --help`.")
        return USAGE
    except click.ClickException as error:
        fail(error.format_message())
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        warn("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        _trace()
        if error.errno not in _DISK:
            return _defect(error)
        fail(f"Cannot write to stdout: {error.strerror}.")
        return FAILED
    except ShoalError as error:
        _trace()
        fail(str(error))
        return USAGE if isinstance(error, (InvalidInput, SettingsError)) else FAILED
    except Exception as error:
        _trace()
        return _defect(error)


def _unknown_option(error: click.NoSuchOption) -> str:
    """Return the message, with the flag that the user probably meant: other programs have other names for it."""
    from shoal.cli.synonyms import flag_for

    path = error.ctx.command_path if error.ctx is not None else "shoal"
    flags = {flag for param in error.ctx.command.params for flag in param.opts} if error.ctx is not None else set()
    meant = flag_for(error.option_name, flags)
    near = [meant] if meant else list(error.possibilities or ())
    question = f"; did you mean {' or '.join([', '.join(near[:-1]), near[-1]] if near[1:] else near)}?" if near else "."
    return f"No such option {error.option_name}{question} See `{path} --help`."


def _defect(error: Exception) -> int:
    text = f"Internal error (a bug in Shoal): {type(error).__name__}: {error}."
    fail(f"{text} Please report it with the traceback that SHOAL_DEBUG=1 prints.")
    return FAILED


def _trace() -> None:
    if os.environ.get("SHOAL_DEBUG") == "1":
        traceback.print_exc()
