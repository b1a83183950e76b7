"""Flags and commands of other programs, and those of Shoal with the same effect. Only for error messages."""

from __future__ import annotations

from collections.abc import Collection

# From curl, wget, Scrapy, Crawlee, Firecrawl and earlier versions of Shoal.
_MEANT = {
    "--max-pages": ("--limit", "-l", "--max-requests", "--max-urls", "--count", "--num-pages"),
    "--max-depth": ("--depth", "--level", "--max-level"),
    "--max-time": ("--time-limit", "--max-duration", "--duration"),
    "--max-bytes": ("--quota", "-Q", "--max-size"),
    "--allow": ("--include", "--accept", "--accept-regex", "--match", "--pattern"),
    "--deny": ("--exclude", "--reject", "--reject-regex", "--ignore", "--skip"),
    "--scope": ("--domain", "--domains", "--allowed-domains", "--span-hosts", "-H", "--subdomains"),
    "--no-follow": ("--no-links", "--single", "--no-crawl", "--no-recursive"),
    "--follow-traps": ("--no-traps",),
    "--per-host": ("--concurrency", "--max-concurrency", "--parallel", "--concurrent-requests"),
    "--workers": ("--threads", "--jobs", "-j", "--processes", "-w", "--max-threads"),
    "--delay": ("--wait", "--rate", "--download-delay", "--sleep", "--interval"),
    "--bandwidth": ("--limit-rate", "--rate-limit", "--max-rate"),
    "--retries": ("--retry", "--tries", "-t", "--max-retries", "--retry-times"),
    "--timeout": ("--max-wait", "--connect-timeout", "--request-timeout"),
    "--out": ("--output", "--output-file", "--output-document", "--to"),
    "--files": ("--download", "--save", "--directory-prefix", "-P", "--media"),
    "--seeds": ("-i", "--input", "--input-file", "--urls", "--url-file", "--list"),
    "--name": ("--resume", "--id", "--job", "--continue", "-c"),
    "--again": ("--revisit", "--refresh", "--recrawl", "--timestamping", "-N"),
    "--header": ("--headers",),
    "--auth": ("--user", "-u", "--login", "--credentials", "--password"),
    "--cookie": ("--cookies", "-b"),
    "--user-agent": ("-A", "-U", "--agent", "--useragent", "--ua"),
    "--ignore-robots": ("--no-robots", "--ignore-robots-txt", "--no-robots-txt", "--disobey-robots"),
    "--sitemaps": ("--sitemap",),
    "--allow-network": ("--allow-private", "--allow-localhost", "--allow-networks", "--local"),
    "--folder": ("--dir", "--directory", "--data"),
    "--json": ("--format",),
}
_FLAGS = {typed: flag for flag, synonyms in _MEANT.items() for typed in synonyms}
_MEANT_COMMANDS = {
    "crawl": ("run", "runspider", "start"),
    "crawls": ("list", "ls", "jobs", "ps"),
    "delete": ("rm", "remove", "purge"),
    "failed": ("errors", "failures", "retry"),
    "fetch": ("get", "scrape", "view"),
    "new": ("genspider", "startproject", "init", "create"),
    "serve": ("server", "api", "dashboard"),
    "show": ("status", "info", "stats"),
    "stop": ("cancel", "kill", "abort"),
}
_COMMANDS = {typed: command for command, synonyms in _MEANT_COMMANDS.items() for typed in synonyms}


def flag_for(typed: str, flags: Collection[str]) -> str:
    """Return the flag of a command with the effect of another program's flag; '' if there is none."""
    meant = _FLAGS.get(typed.partition("=")[0], "")
    return meant if meant in flags else ""


def command_for(typed: str) -> str:
    """Return the command with the effect of another program's command; '' if there is none."""
    return _COMMANDS.get(typed, "")
