"""Report phrases that a native speaker stumbles over, in everything a person reads.

Searches the strings and comments of the package, the tests, benchmarks, tools and examples, the names of tests, the
comments of the Lua scripts, the files of deploy/, and Markdown. Each hit is one line with a suggestion, and the exit
code is 1. A legitimate use is listed in ALLOWED with its reason.

    python docs/words.py [FILE...]
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BE = r"(?:is|are|was|were|be|been|being)"
# A regular expression, and what to write instead. Case is ignored.
PHRASES = {
    r"reckon(?:s|ed|ing)?": "estimate",
    rf"{BE} away|comes? back from being away|while away": "unavailable, down",
    r"go(?:es|ne)? on|going on|went on": "resume, continue",
    r"(?:begin|began|begun|made|make|start|started) anew|anew": "again, from scratch, recreate",
    rf"{BE} (?:never |not )?asked|ask(?:s|ed|ing)? for|asks? (?:nobody|nothing|no one)": "request, send requests",
    rf"{BE} (?:not |never )?told|told (?:of|by|apart|so)|tells? of": "report, log, emit, inform",
    rf"{BE} (?:never |not )?said|said (?:of|again)": "report, state",
    r"(?:there )?(?:is|are) no (?!longer|more|other|such|need|new|free)\w+": "is not a ..., invalid",
    r"of somebody else|of (?:yours|ours|theirs)": "someone else's, your, our",
    r"somebody|whoever": "a user, a process, the worker that ...",
    r"take(?:n|s)? (?:them|it|these|that) for": "treat as",
    rf"{BE} heard|heard of": "received, seen, reconnected",
    r"tend(?:s|ed|er|ers|ing) (?!to\b)": "maintain, maintainer",
    r"gather(?:s|ed|er|ers|ing)?(?!\()": "merge",
    r"(?:can|cannot|could|to) be had": "available, unavailable",
    r"cannot be meant|can be meant|be meant": "invalid; did you mean ...?",
    rf"{BE} waited for": "Shoal waits for ... and retries",
    r"left alone": "paused, skipped, not changed",
    r"(?:goes|go) before": "take precedence over",
    rf"{BE} through(?= with| when|\b[,.;:])": "done, finished",
    r"(?:pages|requests|bytes|URLs|times|calls|commands) a (?:second|minute)": "per second",
    r"for ever": "permanently, forever",
    r"leftovers?|hindrances?": "worker files, transient errors",
    r"(?:a|this is a) defect of": "a bug in",
    r"as often as wanted": "repeatable",
}
# A phrase may be broken at the end of a line.
PATTERN = re.compile("|".join(rf"(\b(?:{phrase})\b)".replace(" ", r"\s+") for phrase in PHRASES), re.IGNORECASE)
# Legitimate uses: the file, a part of the line, and the reason.
ALLOWED: dict[tuple[str, str], str] = {
    ("docs/words.py", ""): "lists the phrases",
    ("tests/unit/test_words.py", ""): "checks that the phrases are found",
}
# Folders with code beside the package, all of whose Python files are read.
CODE = ("bench", "docs", "examples", "tests", "tools")


def sources() -> list[Path]:
    """Every file whose text people read."""
    package = ROOT / "src/shoal"
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    code = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    deployment = [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    return sorted([*package.rglob("*.py"), *package.rglob("*.lua"), *code, *deployment, *pages])


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The parts of a file that are prose, each with the number of its first line."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        comment: list[str] = []
        start = 0
        before = ""
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                # A comment of several lines is one text: a phrase may be broken at the end of a line.
                if comment and token.start[0] != start + len(comment):
                    yield start, "\n".join(comment)
                    comment = []
                start = start if comment else token.start[0]
                comment.append(token.string.lstrip("# "))
            elif tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE"):
                yield token.start[0], token.string
            elif before == "def" and token.string.startswith("test_"):
                # The name of a test is a sentence.
                yield token.start[0], token.string.replace("_", " ")
            before = token.string
        if comment:
            yield start, "\n".join(comment)
    elif path.suffix == ".lua":
        for number, line in enumerate(source.splitlines(), 1):
            if "--" in line:
                yield number, line.partition("--")[2]
    else:
        # Code and names of tests are not prose.
        yield 1, re.sub(r"`[^`\n]*`", lambda code: " " * len(code.group()), source)


def hits(path: Path) -> Iterator[str]:
    name = path.relative_to(ROOT).as_posix()
    for first, text in texts(path):
        for found in PATTERN.finditer(text):
            # "There is no page" is plain; "this is no page" is not.
            if found.group().lower().startswith("there"):
                continue
            before = text[: found.start()].count("\n")
            line = text.splitlines()[before] if text.splitlines() else text
            if any(name == file and part in line for file, part in ALLOWED):
                continue
            suggestion = list(PHRASES.values())[(found.lastindex or 1) - 1]
            yield f'{name}:{first + before}: "{" ".join(found.group().split())}": {suggestion}'


def main(arguments: list[str]) -> int:
    paths = [Path(argument).resolve() for argument in arguments] or sources()
    found = [hit for path in paths for hit in hits(path)]
    print("\n".join(found) if found else "words: plain")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
