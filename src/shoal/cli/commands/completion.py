"""`shoal completion`: what a shell needs to complete commands, flags and files."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

_VARIABLE = "_SHOAL_COMPLETE"


@click.command("completion", short_help="Print what lets a shell complete commands and flags.")
@click.argument("shell", metavar="bash|zsh|fish", required=False, type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str | None) -> None:
    """Print a script that lets a shell complete commands, flags and files.

    \b
    bash   add to ~/.bashrc:  eval "$(shoal completion bash)"
    zsh    add to ~/.zshrc:   eval "$(shoal completion zsh)"
    fish   shoal completion fish > ~/.config/fish/completions/shoal.fish
    """
    if shell is None:
        raise click.UsageError("Say for which shell: `shoal completion bash`, zsh or fish.")
    from shoal.cli.main import program

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"{shell} cannot be completed for.")
    # The template alone: what click does beside it starts a bash to ask for its version.
    one = made(program, {}, "shoal", _VARIABLE)
    click.echo(one.source_template % one.source_vars())


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For options that name a file."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]
