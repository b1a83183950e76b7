"""`-f crawl.toml`: the flags of a command as keys of a file. Command-line flags take precedence.

Paths are relative to the current folder, as on the command line. No message shows a value: it may be a secret.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli.options import parse_duration
from shoal.errors import InvalidInput


def from_file(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    """Callback of an eager option: the values of the file become defaults of the other options."""
    if name is not None:
        ctx.default_map = {**(ctx.default_map or {}), **_checked(ctx, name, _read(name))}


def _read(name: str) -> dict[str, Any]:
    # Imported only if -f is passed.
    import tomllib

    try:
        return tomllib.loads(Path(name).read_bytes().decode())
    except OSError as error:
        raise InvalidInput(f"Cannot read {name}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 text: {error.reason}.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"Invalid TOML in {name}: {str(error).rstrip('.')}.") from None


def _checked(ctx: click.Context, name: str, entries: dict[str, Any]) -> dict[str, Any]:
    """Return the values by parameter name. Raises InvalidInput for an unknown key or a value of the wrong type."""
    params = {str(param.name): param for param in ctx.command.params if param.expose_value}
    values: dict[str, Any] = {}
    for key, value in entries.items():
        parameter = key.replace("-", "_")
        param = params.get(parameter)
        if param is None:
            import difflib

            known = [other.replace("_", "-") for other in params]
            near = difflib.get_close_matches(key.replace("_", "-"), known, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}."
            raise InvalidInput(f"{name}: unknown key {key!r:.80}; {hint}")
        if parameter in values:
            raise InvalidInput(f"{name}: {parameter.replace('_', '-')} is given twice, with - and with _.")
        try:
            values[parameter] = _value(ctx, param, value)
        except (click.BadParameter, TypeError):
            raise InvalidInput(f"{key} in {name} must be {_expected(param)}.") from None
    return values


def _value(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the value. Raises TypeError if its type is not the flag's.

    click alone would accept True as a number, and a number as text.
    """
    if param.multiple or param.nargs == -1:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise TypeError
        return tuple(param.type.convert(text, param, ctx) for text in value)
    if isinstance(param.type, click.types.BoolParamType):
        kinds: tuple[type, ...] = (bool,)
    elif isinstance(param.type, click.IntRange):
        kinds = (int,)
    elif isinstance(param.type, click.FloatRange):
        kinds = (int, float)
    else:
        # A size may be a number of bytes.
        kinds = (str, int) if isinstance(param.type, click.types.FuncParamType) else (str,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError
    param.type.convert(str(value) if isinstance(param.type, click.types.FuncParamType) else value, param, ctx)
    return str(value) if isinstance(param.type, click.types.FuncParamType) else value


def _expected(param: click.Parameter) -> str:
    kind = param.type
    if param.multiple or param.nargs == -1:
        return "a list of strings"
    if isinstance(kind, click.types.BoolParamType):
        return "true or false"
    if isinstance(kind, click.Choice):
        return f"one of {', '.join(map(str, kind.choices))}"
    if isinstance(kind, click.IntRange | click.FloatRange):
        what = "a whole number" if isinstance(kind, click.IntRange) else "a number"
        return f"{what} from {kind.min:g}" + (f" to {kind.max:g}" if kind.max is not None else "")
    if isinstance(kind, click.types.FuncParamType):
        return "a time, such as 90s or 2h" if kind.func is parse_duration else "a size, such as 500000 or 1.5mb"
    return "a string"
