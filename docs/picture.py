"""Make docs/images/display.svg: the live display of a real crawl of sites on this machine, captured in tmux.

Needs tmux, and Linux, where every address of 127.0.0.0/8 is this machine.

    python docs/picture.py
"""

from __future__ import annotations

import html
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

IMAGE = Path(__file__).resolve().parent / "images/display.svg"
SOURCES = Path(__file__).resolve().parent.parent / "src"
COLUMNS, ROWS = 92, 24
HOSTS, PAGES = 24, 400
SECONDS = 25
COLOURS = {"31": "#f47067", "32": "#8ddb8c", "33": "#e0b341", "36": "#76c7d8"}
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8, 17, 14


class Site(BaseHTTPRequestHandler):
    """Pages that link to their neighbours, after the time that a small server takes."""

    def do_GET(self) -> None:
        number = int("".join(filter(str.isdigit, self.path)) or 0)
        links = "".join(f'<a href="/{(number * 3 + step) % PAGES}.html">{step}</a> ' for step in range(1, 4))
        body = f"<title>Page {number}</title> {'Some text. ' * 300} {links}".encode()
        time.sleep(0.02)
        self.send_response(404 if self.path == "/robots.txt" or number % 97 == 96 else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def capture(port: int, folder: str) -> str:
    """The screen of a terminal in which a crawl has run for some seconds."""
    seeds = [f"http://127.0.0.{number}:{port}/" for number in range(2, 2 + HOSTS)]
    command = [sys.executable, "-m", "shoal", "crawl", *seeds, "--name", "docs", "--delay", "0.3", "--workers", "2"]
    command += ["--allow-network", "127.0.0.0/8", "--user-agent", "examplebot/1.0 (+https://example.org/bot)"]
    session = f"shoal-picture-{port}"
    shell = f"cd {shlex.quote(folder)} && PYTHONPATH={shlex.quote(str(SOURCES))} {shlex.join(command)}"
    tmux = ["tmux", "-L", session]
    subprocess.run([*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), shell], check=True)
    try:
        time.sleep(SECONDS)
        screen = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True).stdout
        subprocess.run([*tmux, "send-keys", "C-c"], check=True)
        time.sleep(5)
        return screen
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def bar(x: int, top: int, sign: str, style: str) -> str:
    """A sign of a graph as a rectangle: fonts draw them with gaps, or not at all."""
    eighths = "▁▂▃▄▅▆▇█".find(sign) + 1
    height = round(14 * eighths / 8) if eighths else 3 if sign == "━" else 1
    y = top + 15 - height if eighths else top + 8 - height // 2
    style = style or ' fill="#545d68"'
    return f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{height}"{style}/>'


def drawn(screen: str) -> str:
    """The screen as SVG: one text element a line, one span for each look."""
    lines = [line.rstrip() for line in screen.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    width, height = COLUMNS * CELL_WIDTH + 2 * MARGIN, len(lines) * CELL_HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#1c2128"/>',
        '<g font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="13.3" fill="#cdd9e5">',
    ]
    for number, line in enumerate(lines):
        column, look = 0, set[str]()
        for piece in re.split(r"(\x1b\[[\d;]*m|[━─▁▂▃▄▅▆▇█]+)", line):
            if piece.startswith("\x1b["):
                for code in piece[2:-1].split(";"):
                    look = set() if code in ("", "0") else look | {code}
                continue
            style = "".join(f' fill="{COLOURS[code]}"' for code in look if code in COLOURS)
            style += ' font-weight="bold"' if "1" in look else ""
            style += ' opacity="0.6"' if "2" in look else ""
            x, top = MARGIN + column * CELL_WIDTH, MARGIN + number * CELL_HEIGHT
            if piece and piece[0] in "━─▁▂▃▄▅▆▇█":
                parts += [bar(x + index * CELL_WIDTH, top, sign, style) for index, sign in enumerate(piece)]
            elif piece.strip():
                # Spaces that no renderer collapses.
                text = html.escape(piece).replace(" ", "\u00a0")
                parts.append(
                    f'<text x="{x}" y="{top + 13}" textLength="{len(piece) * CELL_WIDTH}"{style}>{text}</text>'
                )
            column += len(piece)
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    port = 0
    for number in range(2, 2 + HOSTS):
        server = ThreadingHTTPServer((f"127.0.0.{number}", port), Site)
        port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        screen = capture(port, folder)
    IMAGE.parent.mkdir(exist_ok=True)
    IMAGE.write_text(drawn(screen), encoding="utf-8")
    print(re.sub(r"\x1b\[[\d;]*m", "", screen))


if __name__ == "__main__":
    main()
