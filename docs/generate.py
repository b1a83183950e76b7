"""Write the parts of docs/ that are generated from the code, and check the documentation.

Owns everything between `<!-- generated: NAME -->` and `<!-- end -->` in docs/: the index, settings, the tree of errors,
the HTTP API, events of logs, metrics. With --check nothing is written; each difference, dead link, unlinked page and
stray word is one line, and the exit code is 1.

    python docs/generate.py [--check]
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal import errors, settings

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SOURCES = ROOT / "src/shoal"
FOLDERS = {
    "guides": "How to do one thing, step by step",
    "concepts": "How Shoal works, and why",
    "reference": "Complete descriptions",
    "operations": "For operators",
    "decisions": "What was decided, why, and what would change our mind",
}
# The functions that emit events, and the folders whose code calls them.
EMITTERS = ("report", "warn", "emit", "_emit", "_emit_once")
EMITTING_FOLDERS = ("cli", "operations", "listen", "api")
# `.git` is a file in a worktree, and a folder elsewhere.
SKIPPED = {".git", "__pycache__", "build", "dist", "node_modules"}
# The brackets keep each pattern from matching its own definition.
STRAY = {
    "a path of one machine": re.compile(r"(?<![\w.*])/(?:wor[k]|roo[t]|home/[a-z]\w*)/"),
    "the address of a package registry": re.compile(
        r"(?i)py[p]i\.(?:org|python)|python[h]osted\.org|npm[j]s\.(?:org|com)"
    ),
}


class Problem(Exception):
    """Something in the sources that keeps a page from being written."""


def pages() -> list[Path]:
    return sorted(p for p in DOCS.rglob("*.md") if p != DOCS / "README.md")


def summary(page: Path) -> tuple[str, str]:
    """The first heading and the first sentence of a page."""
    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S).strip()
    heading, _, body = text.partition("\n")
    paragraph = " ".join(body.strip().split("\n\n", 1)[0].split())
    if not heading.startswith("# ") or not paragraph or paragraph.startswith(("#", "|", "```")):
        raise Problem(f"{name_of(page)}: begin with a '# heading' and a sentence that says what the page is for")
    # A link inside the sentence would be relative to the page, not to the index.
    paragraph = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)
    return heading[2:].strip(), re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0]


def index() -> str:
    lines: list[str] = ["## Overview", ""]
    lines += [
        f"- [{heading}]({page.name}): {sentence}"
        for page in pages()
        if page.parent == DOCS
        for heading, sentence in [summary(page)]
    ]
    lines.append("")
    for folder, meaning in FOLDERS.items():
        found = [page for page in pages() if page.is_relative_to(DOCS / folder)]
        if found:
            lines += [f"## {folder.capitalize()}", "", f"{meaning}.", ""]
            lines += [
                f"- [{heading}]({page.relative_to(DOCS).as_posix()}): {sentence}"
                for page in found
                for heading, sentence in [summary(page)]
            ]
            lines.append("")
    return "\n".join(lines).strip()


def settings_table() -> str:
    lines: list[str] = []
    for section in settings.SECTIONS:
        lines += [f"## [{section.section}]", "", inspect.getdoc(section) or "", ""]
        lines += ["| key | default | meaning | must be | variable |", "| --- | --- | --- | --- | --- |"]
        for field in settings.fields_of(section):
            default = f'"{field.default}"' if isinstance(field.default, str) else str(field.default)
            cells = [f"`{field.key}`", f"`{default}`", field.description, field.expects, f"`{field.variable}`"]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    for table, meaning in settings.TABLES.items():
        lines += [f"## [{table}]", "", f"{meaning} You choose the names.", ""]
    return "\n".join(lines).strip()


def errors_tree() -> str:
    """The tree drawn at the top of errors.py, after checking that it is the tree of its classes."""
    classes = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and value.__module__ == errors.__name__
    }
    block = re.search(r"(?:^    .*\n)+", (errors.__doc__ or "") + "\n", flags=re.M)
    if block is None:
        raise Problem("src/shoal/errors.py: the module's docstring holds no tree")
    drawn: dict[str, tuple[str | None, str]] = {}
    path: list[str] = []
    for line in block.group().splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+)(?:\s{2,}(.*))?$", line)
        if match is None:
            raise Problem(f"src/shoal/errors.py: this line of the tree cannot be read: {line.strip()}")
        path = [*path[: len(match[1]) // 4], match[2]]
        drawn[match[2]] = (path[-2] if len(path) > 1 else None, match[3] or "")
    for name in sorted(classes.keys() ^ drawn.keys()):
        raise Problem(f"src/shoal/errors.py: {name} is {'not drawn in the tree' if name in classes else 'not a class'}")
    lines = ["```", inspect.cleandoc(block.group()), "```", "", "| error | is a | meaning |", "| --- | --- | --- |"]
    for name, (parent, meaning) in drawn.items():
        actual = classes[name].__bases__[0]
        if parent is not None and actual is not classes[parent]:
            raise Problem(f"src/shoal/errors.py: {name} is drawn under {parent} but derives from {actual.__name__}")
        doc = (vars(classes[name]).get("__doc__") or "").strip().partition("\n\n")[0]
        children = [child for child, (above, _) in drawn.items() if above == name]
        text = meaning or " ".join(doc.split()) or f"any of {', '.join(f'`{child}`' for child in children)}"
        lines.append(f"| `{name}` | {f'`{actual.__name__}`'} | {text} |")
    return "\n".join(lines)


def api_tables() -> str:
    """Routes and types of the HTTP API, as /openapi.json has them."""
    from shoal.api.openapi import describe
    from shoal.api.routes import ROUTES

    description = describe(ROUTES)
    lines = ["## Routes", "", "| route | role | what it does | takes | gives |", "| --- | --- | --- | --- | --- |"]
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            role = re.search(r"role (\w+)(.*)", operation.get("description", ""))
            needs = f"{role[1]}{', not bound to an app' if 'bound' in role[2] else ''}" if role else "-"
            parameters = operation.get("parameters", ())
            query = [parameter["name"] for parameter in parameters if parameter["in"] == "query"]
            takes = [f"`?{'`, `?'.join(query)}`"] if query else []
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            takes += [_type_of(body)] if body else []
            done = next(answer for status, answer in operation["responses"].items() if status[0] == "2")
            gives = [
                _type_of(media["schema"]) if "json" in name else name for name, media in done.get("content", {}).items()
            ]
            cells = [f"`{method.upper()} {path}`", needs, operation["summary"], ", ".join(takes), ", ".join(gives)]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Types", ""]
    for name, schema in sorted(description["components"]["schemas"].items()):
        lines += [f"### {name}", "", _paragraph(schema.get("description", "")), ""]
        lines += ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
        for field, kind in schema["properties"].items():
            default = "required" if field in schema.get("required", ()) else f"`{json.dumps(kind.get('default'))}`"
            lines.append(f"| `{field}` | {_type_of(kind)} | {default} | {kind.get('description', '')} |")
        for example in schema.get("examples", ()):
            lines += ["", "```json", json.dumps(example, indent=2), "```"]
        lines.append("")
    return "\n".join(lines).strip()


def crawl_options() -> str:
    """Every option of a crawl, as model/limits.py and model/crawl_spec.py declare it."""
    from shoal.model.crawl_options import options
    from shoal.model.option import flag_name

    lines = ["| option | flag | default | enforced by | meaning |", "| --- | --- | --- | --- | --- |"]
    for option in options():
        if not option.internal:
            flag = f"`--{flag_name(option)}`" if option.flag else ""
            default = json.dumps(option.default)
            cells = [f"`{option.name}`", flag, f"`{default}`", option.enforced_by, option.description]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def log_events() -> str:
    """The events of a log, each with its fields."""
    from shoal.operations.events import EVENTS

    given = event_fields()
    for name in sorted(given.keys() - EVENTS.keys()):
        raise Problem(f"src/shoal/operations/events.py: the event {name} is not in EVENTS")
    lines = ["| event | fields | meaning |", "| --- | --- | --- |"]
    for name, meaning in EVENTS.items():
        lines.append(f"| `{name}` | {', '.join(f'`{field}`' for field in given.get(name, ()))} | {meaning} |")
    return "\n".join(lines)


def event_fields() -> dict[str, list[str]]:
    """The keywords of every call of EMITTERS, by event, and the events that the API logs by its table."""
    from shoal.api.audit import facts
    from shoal.operations.events import EVENTS

    found: dict[str, list[str]] = {}
    for function, calls in _emitting_functions():
        for emitter, call in calls:
            keywords = {keyword.arg: keyword.value for keyword in call.keywords}
            if emitter not in ("report", "warn") and "event" not in keywords:
                continue
            default = ast.Constant("warning" if emitter == "warn" else "note")
            event = keywords.pop("event", default)
            fields = [name for name in keywords if name]
            if None in keywords:
                fields += _keys_before(call, function)
            if isinstance(event, ast.Constant):
                names = [str(event.value)]
            elif isinstance(event, ast.JoinedStr):
                start = str(getattr(event.values[0], "value", ""))
                # Troubles are logged by name; the other events of a worker come from its supervisor.
                names = [name for name in EVENTS if name.startswith(start) and name != "worker.trouble"]
            else:
                continue
            for name in names:
                known = found.setdefault(name, [])
                known += [field for field in fields if field not in known]
    for name, fields in facts().items():
        known = found.setdefault(name, [])
        known += [field for field in fields if field not in known]
    return found


@functools.cache
def _emitting_functions() -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[tuple[str, ast.Call]]]]:
    """Every function of the sources, with its calls that emit an event."""
    return [
        (
            function,
            [
                (_called(call), call)
                for call in ast.walk(function)
                if isinstance(call, ast.Call) and _called(call) in EMITTERS
            ],
        )
        for folder in EMITTING_FOLDERS
        for path in sorted((SOURCES / folder).rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _called(call: ast.AST) -> str:
    """The name of the function or method that a call calls."""
    function = getattr(call, "func", None)
    return str(getattr(function, "id", "") or getattr(function, "attr", ""))


def _keys_before(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The keys of the dicts that a function assigns before this call."""
    return [
        str(key.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and isinstance(node.value, ast.Dict)
        if node.lineno < call.lineno
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    ]


def metrics_table() -> str:
    """The metrics of an empty store with one worker, as they are scraped."""
    from shoal.api.fleet_stats import FleetStats
    from shoal.api.metrics import families
    from shoal.frontier.workers import WorkerInfo
    from shoal.model.crawl import Counts

    nothing = FleetStats(
        crawls={},
        counts=Counts(),
        workers=0,
        pages_per_second=0,
        hosts_ready=0,
        hosts_cooling=0,
        hosts_leased=0,
        lease_age_seconds=0,
        workers_wanted=0,
        redis_queue_length=0,
    )
    lines = ["| metric | kind | labels | meaning |", "| --- | --- | --- | --- |"]
    for family in families(nothing, [WorkerInfo(name="", seen_seconds_ago=0, info={})], 0, nothing.counts):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in getattr(family, "_labelnames", ()))
        lines.append(f"| `{name}` | {family.type} | {labels} | {family.documentation} |")
    return "\n".join(lines)


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def _type_of(schema: dict[str, Any]) -> str:
    """A type in a few words, with the range that it is limited to."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type_of(choice) for choice in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type_of(schema['items'])}" if schema.get("items") else "list"
    text = str(schema.get("type", "any"))
    low, high = schema.get("minimum"), schema.get("maximum")
    return f"{text} from {low} to {high:,}" if low is not None and high is not None else text


def capacity_tables() -> str:
    """Crawls from one laptop to ten billion pages, as `shoal plan` estimates them."""
    from shoal.operations.plan import plan

    lines = [
        "| pages | hosts | store nodes | workers | pages/s | time | store memory | receives | limited by |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    small = [(10**4, 10, 1), (10**6, 1_000, 1), (10**7, 10_000, 1)]
    for pages, hosts, nodes in (*small, (10**8, 10**6, 1), (10**9, 10**7, 4), (10**10, 5 * 10**7, 32)):
        crawl = plan(pages=pages, hosts=hosts, nodes=nodes, delay=1.0, response=0.2, page_bytes=40_000)
        time = f"{crawl.days:.1f} days" if crawl.days > 1 else f"{crawl.seconds / 3600:.1f} h"
        memory = f"{crawl.store_bytes_most / 1e9:,.1f} GB" if crawl.store_bytes_most > 1e9 else "under 1 GB"
        received = f"{crawl.bytes_per_second * 8 / 1e6:,.0f} Mbit/s"
        cells = f"{pages:,}", f"{hosts:,}", str(nodes), f"{crawl.workers:,}", f"{crawl.pages_per_second:,.0f}"
        lines.append(f"| {' | '.join((*cells, time, memory, received, crawl.limit))} |")
    return "\n".join(lines)


GENERATED = {
    DOCS / "operations/sizing.md": ("capacity", capacity_tables),
    DOCS / "README.md": ("index", index),
    DOCS / "reference/settings.md": ("settings", settings_table),
    DOCS / "reference/errors.md": ("errors", errors_tree),
    DOCS / "reference/api.md": ("api", api_tables),
    DOCS / "reference/crawl-options.md": ("crawl-options", crawl_options),
    DOCS / "reference/logs.md": ("logs", log_events),
    DOCS / "reference/metrics.md": ("metrics", metrics_table),
}


def rendered(page: Path) -> str:
    part, render = GENERATED[page]
    begin, end = f"<!-- generated: {part} -->", "<!-- end -->"
    text = page.read_text(encoding="utf-8")
    if begin not in text or end not in text.partition(begin)[2]:
        raise Problem(f"{name_of(page)}: the markers {begin} and {end} are missing")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{render()}\n\n{end}{rest.partition(end)[2]}"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the repository; hidden folders contain no file of the project except .ci."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(part.startswith(".") and part != ".ci" for part in parts[:-1])
        if (
            hidden
            or SKIPPED.intersection(parts)
            or not path.is_file()
            or path.suffix in {".png", ".db", ".rdb", ".aof"}
        ):
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def anchors(text: str) -> set[str]:
    """The names that a hosting site gives to headings: lower case, spaces to dashes, other signs dropped."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    headings = re.findall(r"^#+\s+(.*)$", prose, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path, text: str) -> Iterator[str]:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
    for target in re.findall(r"\]\(\s*<?([^)\s>]+)", prose):
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        if not found.exists():
            yield f"{name_of(page)}: the link {target} leads nowhere"
        elif anchor and found.suffix == ".md" and anchor not in anchors(found.read_text(encoding="utf-8")):
            yield f"{name_of(page)}: the link {target} names a heading that is not there"


def problems() -> Iterator[str]:
    for page in GENERATED:
        try:
            if rendered(page) != page.read_text(encoding="utf-8"):
                yield f"{name_of(page)}: out of date; run `make docs`"
        except Problem as problem:
            yield str(problem)
    listed = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in pages():
        if f"]({page.relative_to(DOCS).as_posix()})" not in listed:
            yield f"{name_of(page)}: not linked from docs/README.md; move it to a folder that is, and run `make docs`"
    for path, text in texts():
        if path.suffix == ".md":
            yield from dead_links(path, text)
        for number, line in enumerate(text.splitlines(), 1):
            for meaning, pattern in STRAY.items():
                if pattern.search(line):
                    yield f"{name_of(path)}:{number}: contains {meaning}"
        if path.parent.name == "requirements":
            yield from lock_problems(path, text)


def lock_problems(path: Path, text: str) -> Iterator[str]:
    """Report a lock that names an index, or a pinned version that pip could not check."""
    if re.search(r"^\s*--?(?:i\b|index|extra-index|find-links)|://", text, re.M):
        yield f"{name_of(path)}: a lock names packages and versions, never where they come from"
    for pin in re.findall(r"^\S+==\S+(?!.*\\\n\s+--hash=sha256:)", text, re.M):
        yield f"{name_of(path)}: {pin} has no hash; run `make lock`"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = list(problems())
        print("\n".join(found) if found else "docs: in order")
        return 1 if found else 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    # The index quotes the other pages, so it comes last.
    for page in reversed(GENERATED):
        try:
            text = rendered(page)
        except Problem as problem:
            print(problem, file=sys.stderr)
            return 1
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
