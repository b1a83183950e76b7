"""Every setting of Shoal as one typed, frozen value, and the rule by which it is put together.

    defaults < shoal.toml < REDIS_URL (for store.url alone) < SHOAL_* < flags

This module owns names, types, ranges and descriptions of settings; docs/reference/settings.md is generated from them.
It opens one file and nothing else: whether a store can be reached or a folder written is for others to find out.
A value that cannot be used stops the start with a SettingsError that names key, value and origin. An unknown variable
only warns, because Kubernetes injects variables such as SHOAL_PORT_6379_TCP into every container beside a service.
"""

from __future__ import annotations

import difflib
import functools
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_args

import msgspec
from msgspec import Meta

from shoal.errors import SettingsError

DEFAULT_FILE = Path("shoal.toml")
PREFIX = "SHOAL_"
# What a client of the HTTP API shows; not a setting, since a file in a repository is no place for it.
TOKEN_VARIABLE = f"{PREFIX}TOKEN"


def masked(text: str) -> str:
    """`text` without what may be a password, fit for a message or a log.

    Everything before the last @ goes, not only what parses as user:password, because a password with an unescaped
    / or @ is exactly the kind of URL that ends up in an error message.
    """
    before, at, after = text.rpartition("@")
    if at:
        scheme, sep, _ = before.partition("://")
        text = f"{scheme}://***@{after}" if sep else f"***@{after}"
    return re.sub(r"(?i)((?:password|passwd|secret|token)=)[^&\s]*", r"\1***", text)


def _shown(value: object) -> str:
    text = masked(value) if isinstance(value, str) else masked(repr(value))
    text = text if len(text) <= 200 else text[:200] + "..."
    return repr(text) if isinstance(value, str) else text


class Field(NamedTuple):
    """One setting: its name, its kind and its meaning, for whoever loads, checks or documents it."""

    section: str
    name: str
    kind: Any
    default: object
    description: str
    expects: str

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.name}".upper()

    def accept(self, value: object, where: str, *, text: bool = False) -> Any:
        """`value` as this setting's type; `text` says that it came as a string whatever its type is."""
        try:
            accepted = msgspec.convert(value, self.kind, strict=not text)
        except msgspec.ValidationError:
            accepted = None
        # NaN passes every comparison, and a control character in a path or URL is never meant.
        unusable = isinstance(accepted, float) and not math.isfinite(accepted)
        unusable = unusable or (isinstance(accepted, str) and any(ord(c) < 32 or ord(c) == 127 for c in accepted))
        if accepted is None or unusable:
            raise SettingsError(f"{self.key} is {_shown(value)} {where}, but must be {self.expects}.")
        return accepted


@functools.cache
def fields_of(section: type[_Section]) -> tuple[Field, ...]:
    """The settings of one section, in the order in which they are written."""
    found = []
    for info in msgspec.structs.fields(section):
        plain, meta = get_args(info.type)
        if plain is str:
            expects = meta.extra["expects"]
        else:
            expects = f"a {'whole ' if plain is int else ''}number from {meta.ge} to {meta.le}"
        found.append(Field(section.section, info.name, info.type, info.default, meta.description, expects))
    return tuple(found)


class _Section(msgspec.Struct, frozen=True):
    """A table of shoal.toml. It checks itself, so a section built in code is as valid as one that was loaded."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields_of(type(self)):
            field.accept(getattr(self, field.name), "in the code")

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.__struct_fields__)
        return f"{type(self).__name__}({values})"


class StoreSettings(_Section, frozen=True, kw_only=True):
    """Where the frontier is kept."""

    section: ClassVar[str] = "store"

    url: Annotated[
        str,
        Meta(
            description="Address of the Valkey or Redis server; empty starts the embedded one in `store.folder`.",
            # Which schemes there are is for shoal.store to know.
            pattern=r"\A(?:[a-z][a-z+]*://.+)?\Z",
            extra={"expects": "empty or a URL like redis://host:6379/0"},
        ),
    ] = ""
    folder: Annotated[
        str,
        Meta(
            description="Folder in which the embedded store keeps its data.",
            min_length=1,
            extra={"expects": "the path of a folder"},
        ),
    ] = ".shoal"
    namespace: Annotated[
        str,
        Meta(
            description="First part of every key, so that several frontiers can share one server.",
            pattern=r"\A[a-z0-9_-]{1,16}\Z",
            extra={"expects": "1 to 16 characters out of a-z, 0-9, _ and -"},
        ),
    ] = "shoal"
    shards: Annotated[
        int,
        Meta(
            description="Number of partitions of the hosts in a new store; one that exists keeps its own.",
            ge=1,
            le=1024,
        ),
    ] = 16
    server: Annotated[
        str,
        Meta(
            description="Program that serves the embedded store; empty takes the bundled one, else the one on PATH.",
            extra={"expects": "empty or the path of a valkey-server or redis-server"},
        ),
    ] = ""
    maxmemory: Annotated[
        str,
        Meta(
            description="Memory limit of the embedded store; empty means half of the machine's RAM.",
            pattern=r"\A(?:[1-9][0-9]{0,15}(?:[kKmMgG][bB]?|[bB])?)?\Z",
            extra={"expects": "empty or a size like 512mb or 4gb"},
        ),
    ] = ""
    patience_seconds: Annotated[
        float,
        Meta(description="How long a lost store is waited for before StoreUnavailable is raised.", ge=0, le=86400),
    ] = 60.0


class FrontierSettings(_Section, frozen=True, kw_only=True):
    """How visits are handed out, and when they are given up."""

    section: ClassVar[str] = "frontier"

    lease_seconds: Annotated[
        float, Meta(description="How long a worker may hold a host before it must renew.", ge=1, le=3600)
    ] = 60.0
    batch_seconds: Annotated[
        float,
        Meta(description="A lease carries as many visits as fit into this time, at least one.", ge=0.1, le=60),
    ] = 2.0
    expiries: Annotated[
        int, Meta(description="How many leases of a visit may run out before the visit fails.", ge=1, le=255)
    ] = 10
    blames: Annotated[
        int, Meta(description="How many workers a visit may kill before it fails as poison.", ge=1, le=255)
    ] = 3
    host_failures: Annotated[
        int, Meta(description="How many failures in a row set a host aside, with all its visits.", ge=1, le=100_000)
    ] = 10
    keep_days: Annotated[
        float,
        Meta(
            description="Days after which an ended crawl leaves the store, but for its id; results stay. 0 is never.",
            ge=0,
            le=36500,
        ),
    ] = 90.0


class FetchSettings(_Section, frozen=True, kw_only=True):
    """How a worker reaches the web. What concerns one crawl (time-out, user agent, headers) is the crawl's own."""

    section: ClassVar[str] = "fetch"

    allow_networks: Annotated[
        str,
        Meta(
            description="Private networks that may be asked, with commas; all others of them are refused.",
            extra={"expects": "empty or networks like 127.0.0.0/8,10.1.0.0/16"},
        ),
    ] = ""
    proxy: Annotated[
        str,
        Meta(
            description="Forward proxy for all requests; the environment's HTTP_PROXY is never used.",
            pattern=r"\A(?:https?://.+)?\Z",
            extra={"expects": "empty or a URL like http://proxy.example:3128"},
        ),
    ] = ""
    bandwidth: Annotated[
        int, Meta(description="Bytes a second that one worker process may receive; 0 is no limit.", ge=0, le=10**12)
    ] = 0
    connections: Annotated[
        int, Meta(description="Connections one worker process keeps open for reuse.", ge=1, le=10_000)
    ] = 1000


class WorkerSettings(_Section, frozen=True, kw_only=True):
    """What one worker process takes on, and when it gives up."""

    section: ClassVar[str] = "worker"

    hosts: Annotated[int, Meta(description="How many hosts a worker process asks at once.", ge=1, le=10_000)] = 200
    grace_seconds: Annotated[
        float, Meta(description="How long open requests may go on after a signal to stop.", ge=0, le=600)
    ] = 10.0
    parse_seconds: Annotated[
        float,
        Meta(description="CPU seconds that reading one page may take before its process is ended.", ge=1, le=3600),
    ] = 30.0
    memory: Annotated[
        int, Meta(description="Bytes of memory one worker process may use; 0 is no limit.", ge=0, le=2**50)
    ] = 2_000_000_000


class ApiSettings(_Section, frozen=True, kw_only=True):
    """Where `shoal serve` answers, and how much it takes."""

    section: ClassVar[str] = "api"

    host: Annotated[
        str,
        Meta(
            description="Address to listen on; without tokens only one of this machine's own is allowed.",
            min_length=1,
            extra={"expects": "an address such as 127.0.0.1 or 0.0.0.0"},
        ),
    ] = "127.0.0.1"
    port: Annotated[int, Meta(description="Port to listen on; 0 takes a free one.", ge=0, le=65535)] = 8080
    rate: Annotated[
        float,
        Meta(description="Requests a second that one token may make.", ge=1, le=10**6),
    ] = 100.0


# Tables of shoal.toml whose names are the user's own, and what they hold.
TABLES: Mapping[str, str] = {
    "outputs": "An output by a name, which a crawl may be given in its place: its password stays on the workers.",
    "spiders": "A spider by a name, as `FILE.py:Class` or `module:Class`.",
    "tokens": "Who may use the HTTP API: `role sha256:...` or `role:app sha256:...`, by `shoal serve --make-token`.",
}
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings. A part of Shoal takes the section it needs, never the whole."""

    store: StoreSettings = StoreSettings()
    frontier: FrontierSettings = FrontierSettings()
    fetch: FetchSettings = FetchSettings()
    worker: WorkerSettings = WorkerSettings()
    api: ApiSettings = ApiSettings()
    outputs: dict[str, str] = {}
    spiders: dict[str, str] = {}
    tokens: dict[str, str] = {}

    def __repr__(self) -> str:
        sections = ", ".join(f"{section.section}={getattr(self, section.section)!r}" for section in SECTIONS)
        # Their values may be secrets.
        return f"Settings({sections}, {', '.join(f'{name}={sorted(getattr(self, name))}' for name in TABLES)})"


class Loaded(NamedTuple):
    """What `load` found: the settings, and sentences for a person about what was ignored."""

    settings: Settings
    warnings: list[str]


SECTIONS: tuple[type[_Section], ...] = (StoreSettings, FrontierSettings, FetchSettings, WorkerSettings, ApiSettings)
FIELDS: Mapping[str, Field] = {field.key: field for section in SECTIONS for field in fields_of(section)}
# In rising order of precedence; SHOAL_STORE is the short name people type, REDIS_URL the one that platforms set.
VARIABLES: Mapping[str, Field] = {
    "REDIS_URL": FIELDS["store.url"],
    f"{PREFIX}STORE": FIELDS["store.url"],
    **{field.variable: field for field in FIELDS.values()},
}


def load(
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Put the settings together: defaults < file < environment < flags.

    `file` is ./shoal.toml when not named, and may then be absent. `environ` is the process's own when not given.
    `flags` maps keys such as "store.url" to values; None means that the flag was not given.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, object] = {}
    values.update(_from_file(file))
    values.update(_from_environ(environ))
    values.update(_from_flags(flags or {}))
    sections: dict[str, Any] = {}
    for section in SECTIONS:
        given = {field.name: values[field.key] for field in fields_of(section) if field.key in values}
        sections[section.section] = section(**given)
    sections.update((name, values[name]) for name in TABLES if name in values)
    return Loaded(Settings(**sections), list(_warnings(environ)))


def _from_file(file: Path | None) -> Iterator[tuple[str, object]]:
    path = DEFAULT_FILE if file is None else file
    try:
        # utf-8-sig: editors on some systems put a byte order mark first, which TOML itself does not know.
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
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
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The settings file {path} is not valid TOML: {error}.") from error
    sections = {section.section for section in SECTIONS} | set(TABLES)
    for name, table in tables.items():
        if name not in sections:
            raise SettingsError(f"{path} has the unknown {_kind(table)} {name}; {_hint(name, sections)}")
        if not isinstance(table, dict):
            raise SettingsError(f"{name} is {_shown(table)} in {path}, but must be a table: write [{name}].")
        if name in TABLES:
            yield name, _named(name, table, f"in {path}")
            continue
        for key, value in table.items():
            field = FIELDS.get(f"{name}.{key}")
            if field is None:
                known = [known for known in FIELDS if known.startswith(f"{name}.")]
                raise SettingsError(f"{path} has the unknown key {name}.{key}; {_hint(key, known)}")
            yield field.key, field.accept(value, f"in {path}")


def _named(table: str, given: dict[str, Any], where: str) -> dict[str, str]:
    """A table of the user's own names. What they stand for may be secret: it is in no message."""
    for name, value in given.items():
        if not _NAME.match(name):
            raise SettingsError(
                f"[{table}] has the name {name[:80]!r} {where}: use 1 to 64 letters, digits and . _ : -."
            )
        if not isinstance(value, str) or not value.strip():
            raise SettingsError(f"{table}.{name} {where} must be text between quotes.")
    return dict(given)


def _from_environ(environ: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for variable, field in VARIABLES.items():
        # An empty variable is one that was not given: that is what compose files pass for `${NAME:-}`.
        if value := environ.get(variable, "").strip():
            yield field.key, field.accept(value, f"in the variable {variable}", text=True)


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, value in flags.items():
        if key in TABLES and isinstance(value, dict):
            yield key, _named(key, value, "in the orders")
            continue
        field = FIELDS.get(key)
        if field is None:
            raise SettingsError(f"The command line has the unknown setting {key}; {_hint(key, FIELDS)}")
        if value is None:
            continue
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        yield key, field.accept(value, "on the command line", text=isinstance(value, str))


def _warnings(environ: Mapping[str, str]) -> Iterator[str]:
    """Names only, never values: a variable that Shoal does not know may hold a secret."""
    strangers = []
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in VARIABLES or variable == TOKEN_VARIABLE:
            continue
        near = difflib.get_close_matches(variable, VARIABLES, n=1, cutoff=0.8)
        if near:
            yield f"The variable {variable} is not a setting and is ignored; did you mean {near[0]}?"
        else:
            strangers.append(variable)
    if len(strangers) == 1:
        yield f"The variable {strangers[0]} is not a setting and is ignored."
    elif strangers:
        yield f"The variables {', '.join(strangers)} are not settings and are ignored."
    short, full = environ.get("SHOAL_STORE", "").strip(), environ.get("SHOAL_STORE_URL", "").strip()
    if short and full and short != full:
        yield "SHOAL_STORE and SHOAL_STORE_URL name different stores; SHOAL_STORE_URL is used."


def _kind(table: object) -> str:
    return "section" if isinstance(table, dict) else "key"


def _hint(unknown: str, known: Iterable[str]) -> str:
    """What was probably meant: the same name in another section, or a name that is spelled alike."""
    names = {key.rpartition(".")[2]: key for key in known}
    last = unknown.rpartition(".")[2]
    meant = [key for key in FIELDS if key.endswith(f".{last}")]
    meant = meant or [names[near] for near in difflib.get_close_matches(last, names, n=1)]
    return f"did you mean {meant[0]}?" if meant else f"known are {', '.join(sorted(names.values()))}."
