"""Loads settings from a file, variables and flags."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import SettingsError
from shoal.settings.fields import PREFIX, fields_of, shown
from shoal.settings.sections import FIELDS, RENAMED, SECTIONS, TABLES, TOKEN_VARIABLE, VARIABLES, Settings

DEFAULT_FILE = Path("shoal.toml")
_OLD_VARIABLES = {f"{PREFIX}{old.replace('.', '_')}".upper(): FIELDS[new] for old, new in RENAMED.items()}
# A variable with this suffix names a file that contains the value.
_FILE = "_FILE"
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")


class Loaded(NamedTuple):
    """The result of `load`: the settings, and messages for the user about old names and ignored variables."""

    settings: Settings
    warnings: list[str]


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Load the settings, with this precedence: defaults < file < environment < flags.

    `file` defaults to ./shoal.toml, which may be absent. `environ` defaults to the environment of the process.
    `flags` maps keys such as "store.url" to values; None means that the flag was not given.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, object] = {}
    renamed: list[str] = []
    values.update(_from_file(file, renamed))
    values.update(_from_environ(environ, renamed))
    for name, table in _tables_from_environ(environ):
        values[name] = {**values.get(name, {}), **table}  # type: ignore[dict-item]
    values.update(_from_flags(flags or {}))
    sections: dict[str, Any] = {}
    for section in SECTIONS:
        given = {field.name: values[field.key] for field in fields_of(section) if field.key in values}
        sections[section.section] = section(**given)
    sections.update((name, values[name]) for name in TABLES if name in values)
    return Loaded(Settings(**sections), [*renamed, *_warnings(environ)])


def _from_file(file: Path | None, renamed: list[str]) -> Iterator[tuple[str, object]]:
    path = DEFAULT_FILE if file is None else file
    try:
        # utf-8-sig: editors on some systems write a byte order mark, which TOML does not allow.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if file is None:
            return
        raise SettingsError(f"The settings file {path} does not exist; create it or name another one.") from None
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"The settings file {path} is not UTF-8 text (byte {error.start}); save it as UTF-8."
        ) from error
    # Imported here, because most programs have no such file; workers never have one.
    import tomllib

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The settings file {path} is not valid TOML: {error}.") from error
    except (ValueError, RecursionError) as error:
        # tomllib does not convert these to TOMLDecodeError.
        reason = "its arrays are nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise SettingsError(f"The settings file {path} cannot be read: {reason}.") from error
    sections = {section.section for section in SECTIONS} | set(TABLES)
    for name, table in tables.items():
        if name not in sections:
            raise SettingsError(f"{path} has the unknown {_kind(table)} {name}; {_hint(name, sections)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{name} is {shown(table)} in {path}, but must be a table: write [{name}].")
        if name in TABLES:
            yield name, _named(name, table, f"in {path}")
            continue
        for key, value in table.items():
            full = f"{name}.{key}"
            if full in RENAMED and RENAMED[full].rpartition(".")[2] not in table:
                renamed.append(f"{path} has the old key {full}; its new name is {RENAMED[full]}.")
                full = RENAMED[full]
            field = FIELDS.get(full)
            if field is None:
                known = [known for known in FIELDS if known.startswith(f"{name}.")]
                raise SettingsError(f"{path} has the unknown key {name}.{key}; {_hint(key, known)}")
            yield field.key, field.accept(value, f"in {path}")


def _named(table: str, given: dict[str, Any], where: str) -> dict[str, str]:
    """Check a table with names that the user chose. The values may be secret, so no message contains them."""
    for name, value in given.items():
        if not _NAME.match(name):
            raise SettingsError(
                f"[{table}] has the name {name[:80]!r} {where}: use 1 to 64 letters, digits and . _ : -."
            )
        if not isinstance(value, str) or not value.strip():
            raise SettingsError(f"{table}.{name} {where} must be text between quotes.")
    return dict(given)


def _from_environ(environ: Mapping[str, str], renamed: list[str]) -> Iterator[tuple[str, object]]:
    for variable, field in _OLD_VARIABLES.items():
        if value := environ.get(variable, "").strip():
            renamed.append(f"The variable {variable} has an old name; its new name is {field.variable}.")
            yield field.key, field.accept(value, f"in the variable {variable}", text=True)
    for variable, field in VARIABLES.items():
        if value := variable_value(environ, variable):
            yield field.key, field.accept(value, f"in the variable {variable}", text=True)


def variable_value(environ: Mapping[str, str], variable: str) -> str:
    """The value of a variable, or the content of the file that VARIABLE_FILE names, e.g. a mounted secret."""
    # An empty variable counts as not set: Compose files pass one for `${NAME:-}`.
    value = environ.get(variable, "").strip()
    path = environ.get(f"{variable}{_FILE}", "").strip()
    if not path:
        return value
    if value:
        raise SettingsError(f"The variables {variable} and {variable}{_FILE} are both set; remove one.")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingsError(f"The file {path} of {variable}{_FILE} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SettingsError(f"The file {path} of {variable}{_FILE} is not UTF-8 text.") from None


def _tables_from_environ(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Entries of tables: SHOAL_OUTPUTS_RESULTS is outputs.results."""
    for table in TABLES:
        names = {_entry_variable(variable, table) for variable in environ} - {""}
        given = {name.removeprefix(_table_prefix(table)).lower(): variable_value(environ, name) for name in names}
        given = {name: value for name, value in given.items() if value}
        if given:
            yield table, _named(table, given, "in a variable")


def _table_prefix(table: str) -> str:
    return f"{PREFIX}{table.upper()}_"


def _entry_variable(variable: str, table: str) -> str:
    """The variable of an entry of this table, without the suffix _FILE; '' if the variable is not an entry."""
    name = variable.removesuffix(_FILE)
    return name if name.startswith(_table_prefix(table)) and name != _table_prefix(table) else ""


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in flags.items():
        if key in TABLES and isinstance(value, dict):
            yield key, _named(key, value, "on the command line")
            continue
        key = RENAMED.get(key, key)
        field = FIELDS.get(key)
        if field is None:
            raise SettingsError(f"The command line has the unknown setting {key}; {_hint(key, FIELDS)}")
        if value is None:
            continue
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        yield key, field.accept(value, "on the command line", text=isinstance(value, str))


def _warnings(environ: Mapping[str, str]) -> Iterator[str]:
    """Names only, never values: a variable that Shoal does not know may hold a secret."""
    unknown = []
    for variable in sorted(environ):
        name = variable.removesuffix(_FILE)
        if not variable.startswith(PREFIX) or name in (*VARIABLES, TOKEN_VARIABLE) or variable in _OLD_VARIABLES:
            continue
        if any(_entry_variable(variable, table) for table in TABLES):
            continue
        near = _nearest(variable, VARIABLES, cutoff=0.8)
        if near:
            yield f"The variable {variable} is not a setting and is ignored; did you mean {near[0]}?"
        else:
            unknown.append(variable)
    if len(unknown) == 1:
        yield f"The variable {unknown[0]} is not a setting and is ignored."
    elif unknown:
        yield f"The variables {', '.join(unknown)} are not settings and are ignored."
    short, full = environ.get("SHOAL_STORE", "").strip(), environ.get("SHOAL_STORE_URL", "").strip()
    if short and full and short != full:
        yield "SHOAL_STORE and SHOAL_STORE_URL name different stores; SHOAL_STORE_URL is used."


def _kind(table: object) -> str:
    return "section" if isinstance(table, dict) else "key"


def _hint(unknown: str, known: Iterable[str]) -> str:
    """A suggestion: the same name in another section, or a name with a similar spelling."""
    names = {key.rpartition(".")[2]: key for key in known}
    last = unknown.rpartition(".")[2]
    similar = [key for key in FIELDS if key.endswith(f".{last}")]
    similar = similar or [names[near] for near in _nearest(last, names)]
    return f"did you mean {similar[0]}?" if similar else f"known names are {', '.join(sorted(names.values()))}."


def _nearest(unknown: str, known: Iterable[str], cutoff: float = 0.6) -> list[str]:
    # Imported here, because only a message needs it.
    import difflib

    return difflib.get_close_matches(unknown, list(known), n=1, cutoff=cutoff)
