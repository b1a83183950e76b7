"""`shoal completion`: the script that completes commands, flags and files in a shell."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

_VARIABLE = "_SHOAL_COMPLETE"


@click.command("completion", short_help="Print the shell completion script.")
@click.argument("shell", metavar="bash|zsh|fish", required=False, type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str | None) -> None:
    """Print the script that completes commands, flags and files in your shell.

    \b
    bash   add to ~/.bashrc:  eval "$(shoal completion bash)"
    zsh    add to ~/.zshrc:   eval "$(shoal completion zsh)"
    fish   shoal completion fish > ~/.config/fish/completions/shoal.fish
    """
    if shell is None:
        raise click.UsageError("Name the shell: `shoal completion bash`, zsh or fish.")
    from shoal.cli.main import program

    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    # Only the template: otherwise click starts a bash to read its version.
    completion = completion_class(program, {}, "shoal", _VARIABLE)
    click.echo(completion.source_template % completion.source_vars())


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For options that name a file."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]
