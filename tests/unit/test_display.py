"""The live display and the log lines, with made-up numbers: what they show, and that it fits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.api.audit import OPERATIONS
from shoal.cli.ui import console, json_log
from shoal.cli.ui.frame import PLAIN_BARS, Snapshot, cells, frame, graph, paint
from shoal.cli.ui.rates import Rates
from shoal.fleet.totals import ReportTotals, causes, seconds_left
from shoal.frontier.inspect import PendingHost
from shoal.model import Lease, Visit
from shoal.model.crawl import Counts
from shoal.model.worker_report import WorkerReport
from shoal.operations import events
from shoal.worker.eta import Eta

REASONS = {"failed:timed out": 40, "failed:status 404": 30, "failed:名前がない": 9, "excluded:robots.txt": 7}


def pace(
    seconds: int = 60, *, pages_per_second: int = 10, to_go: int = 500, ahead: float = 0.0, max_pages: int = 0,
    workers: int = 2, trouble: str = "",
) -> Rates:  # fmt: skip
    """A crawl that ran so long at a constant pace, counted once a second."""
    made = Rates("docs", max_pages)
    for second in range(seconds):
        stored = second * pages_per_second
        reports = [
            WorkerReport(
                worker=f"box-1-{n + 1}", pid=100 + n, pages=stored // workers, bytes=stored * 1000, open_hosts=5,
                alive_seconds=second + 1.0, cpu_seconds=second * 0.2, politeness_seconds=second * 0.8,
                ahead={"docs": ahead / (n + 1)}, trouble=trouble,
            )
            for n in range(workers)
        ]  # fmt: skip
        counts = Counts(
            admitted=stored + 86 + to_go, waiting=to_go, stored=stored, failed=79, excluded=7, reasons=REASONS
        )
        made.note(float(second), ReportTotals().of(reports), reports, counts, (3, 40))
    return made


def shown(made: Rates, columns: int, rows: int, title: str = "docs", *, resumed: bool = False) -> list[str]:
    view = Snapshot(
        title=title, state="running", elapsed_seconds=61.0, pace=made, left_seconds=made.left(59.0), prefix="box-1",
        resumed=resumed,
    )  # fmt: skip
    return [paint(line, colours=False) for line in frame(view, columns, rows)]


# Time left


def test_the_slowest_host_decides_however_fast_the_others_are() -> None:
    assert seconds_left(open=500, ended_per_second=100, ahead_seconds=400) == 400


def test_the_rate_of_the_workers_decides_if_they_are_the_limit() -> None:
    assert seconds_left(open=5000, ended_per_second=10, ahead_seconds=60) == 500


def test_a_limit_on_pages_shortens_the_estimate() -> None:
    left = seconds_left(open=5000, ended_per_second=10, ahead_seconds=900, pages_left=50, pages_per_second=5)
    assert left == 10


def test_without_a_rate_there_is_no_estimate_and_without_open_urls_it_is_zero() -> None:
    assert seconds_left(open=5, ended_per_second=0, ahead_seconds=0) is None
    assert seconds_left(open=5, ended_per_second=0, ahead_seconds=7) == 7
    assert seconds_left(open=0, ended_per_second=0, ahead_seconds=7) == 0


def test_the_remaining_time_is_at_least_the_wait_for_a_failing_host() -> None:
    assert seconds_left(open=3, ended_per_second=0, ahead_seconds=0, pending_seconds=90) == 90
    assert seconds_left(open=500, ended_per_second=10, ahead_seconds=0, pending_seconds=20) == 50


def test_the_estimate_uses_the_counts_the_limit_and_the_slowest_host() -> None:
    assert pace(to_go=500).left(59.0) == pytest.approx(50, rel=0.01)
    assert pace(to_go=500, ahead=300).left(59.0) == pytest.approx(300)
    # It goes down by itself between two counts.
    assert pace(to_go=500, ahead=300).left(61.0) == pytest.approx(298)
    assert pace(to_go=500, ahead=300, max_pages=690).left(59.0) == pytest.approx(10, rel=0.01)
    assert Rates().left(1.0) is None


def test_the_estimate_of_a_crawl_that_finds_more_urls_than_it_visits_is_a_minimum() -> None:
    made = Rates("docs")
    for second, to_go in enumerate((10, 500, 900)):
        made.note(float(second), WorkerReport(), [], Counts(admitted=to_go + second, waiting=to_go, stored=second))
    assert shown(made, 80, 24)[0].endswith("at least 14 min left")
    for second, to_go in enumerate((900, 500, 10), 40):
        made.note(float(second), WorkerReport(), [], Counts(admitted=1000, waiting=to_go, stored=1000 - to_go))
    assert not made.growing


def lease(host: str, ahead_seconds: float, crawl: str = "docs") -> Lease:
    visit = Visit(url=f"http://{host}/", crawl=crawl)
    return Lease("t", 0, host, 1.0, 1, 60.0, (visit,), ahead_seconds=ahead_seconds)


def test_a_worker_reports_its_slowest_host_until_the_host_is_done_or_given_up() -> None:
    outlook, report = Eta(), WorkerReport()

    def ahead(now: float) -> dict[str, float]:
        outlook.fill(report, now)
        return report.ahead

    outlook.note(lease("slow", 100.0), 0.0)
    outlook.note(lease("quick", 5.0), 0.0)
    outlook.note(lease("other", 50.0, crawl="else"), 0.0)
    assert ahead(10.0) == {"docs": 90.0, "else": 40.0}
    # The newest value of the store counts, also if it is smaller.
    outlook.note(lease("slow", 60.0), 20.0)
    assert ahead(20.0)["docs"] == 60.0
    # A lease without the value changes nothing.
    outlook.note(lease("slow", 0.0), 20.0)
    assert ahead(20.0)["docs"] == 60.0
    outlook.gone("slow")
    assert ahead(20.0) == {"else": 30.0}
    assert ahead(60.0) == {}
    outlook.backs_off("busy", 70.0)
    ahead(60.0)
    assert report.backing_off == 1
    ahead(71.0)
    assert report.backing_off == 0


def test_the_longest_time_of_all_live_workers_counts() -> None:
    totals = ReportTotals()
    totals.keep(WorkerReport(pages=5, ahead={"docs": 900.0}, backing_off=3, open_hosts=4))
    total = totals.of(
        [WorkerReport(ahead={"docs": 5.0, "a": 1.0}, backing_off=1), WorkerReport(ahead={"docs": 7.0}, pages=1)]
    )
    assert total.ahead == {"docs": 7.0, "a": 1.0}
    assert (total.backing_off, total.open_hosts, total.pages) == (1, 0, 6)


def test_the_bottleneck_is_computed_from_the_last_interval_only() -> None:
    before = WorkerReport(alive_seconds=100, cpu_seconds=90, politeness_seconds=10)
    now = WorkerReport(alive_seconds=110, cpu_seconds=91, politeness_seconds=19)
    assert causes(now, since=before) == [("politeness", 0.9), ("CPU", 0.1)]


# The frame


def test_a_frame_shows_every_figure() -> None:
    lines = shown(pace(ahead=300), 80, 24)
    text = "\n".join(lines)
    assert lines[0] == "docs  running  61 s  about 5 min left"
    assert "57% of 1,176 URLs found" in lines[1]
    assert lines[2].startswith("pages       590         10.0 pages/s now, 10.0 mean")
    assert "received    590 kB" not in text  # two workers received as much each
    assert "received    1.2 MB" in text
    assert "remaining   500         500 waiting" in text
    assert "failed      79          40 timed out, 30 status 404, 9 名前がない" in text
    assert "excluded    7           7 robots.txt" in text
    assert "hosts       10 open     3 ready, 40 cooling down, 0 backing off" in text
    assert "bottleneck  politeness 80%, CPU 20%" in text
    assert "     1      100         295      5.0      5    20%  politeness 80%" in lines
    assert "     2      101         295      5.0      5    20%  politeness 80%" in lines


def test_a_frame_shows_an_unavailable_store_instead_of_a_rate() -> None:
    view = Snapshot(
        title="docs", state="running", elapsed_seconds=61.0, pace=pace(ahead=300), left_seconds=300.0,
        store_trouble="127.0.0.1:6379: connection refused", unavailable_seconds=12.0,
    )  # fmt: skip
    lines = [paint(line, colours=False) for line in frame(view, 80, 24)]
    assert lines[0] == "docs  store unavailable  61 s"
    assert lines[2].startswith("pages       590         when the store last responded, 12.0 s ago")
    assert "trouble     127.0.0.1:6379: connection refused" in lines


def test_a_store_rolled_back_to_older_data_gives_no_negative_rate() -> None:
    made = Rates("docs")
    for mono, stored in ((0.0, 100), (5.0, 40)):
        made.note(
            mono, WorkerReport(), [WorkerReport(worker="w", pages=stored, alive_seconds=mono)], Counts(stored=stored)
        )
    assert (made.rate, made.mean, made.rates(10)[0], made.workers()[0].rate) == (0.0, 0.0, [0.0], 0.0)


def test_figures_of_this_run_are_labelled_if_there_were_earlier_runs() -> None:
    lines = shown(pace(), 100, 24, resumed=True)
    assert lines[0].startswith("docs  running  61 s in this run  about")
    assert "10.0 pages/s now, 10.0 mean in this run" in lines[2]
    assert lines[3].endswith("kB/s, in this run")
    assert not any("in this run" in line for line in shown(pace(), 100, 24))


def test_a_host_with_leased_visits_counts_as_open_before_its_worker_reports_it() -> None:
    made = Rates("docs")
    made.note(0.0, WorkerReport(), [WorkerReport(worker="a")], Counts(admitted=7, waiting=5, leased=2), (0, 0))
    text = "\n".join(shown(made, 80, 24))
    assert "hosts       1 open      0 ready, 0 cooling down" in text
    assert "remaining   7           5 waiting, 2 with workers" in text


def test_workers_that_do_not_fit_are_counted() -> None:
    lines = shown(pace(workers=40), 80, 24)
    rows = [line for line in lines if line.endswith("politeness 80%")]
    assert 3 <= len(rows) < 40
    pages = (40 - len(rows)) * 14
    assert lines[-1].startswith(f"and {40 - len(rows)} more, with {pages:,} pages")


def test_a_wide_terminal_shows_two_workers_per_row_and_a_tall_one_a_graph() -> None:
    lines = shown(pace(workers=60), 200, 50)
    assert sum("politeness 80%" in line for line in lines) >= 20
    assert sum(line.count("politeness 80%") for line in lines if " open " not in line and "limit" not in line) >= 40
    assert any(line.startswith("10.0 pages/s █") for line in lines)
    assert any(line.endswith("now") and "59 s ago" in line for line in lines)


@given(
    columns=st.integers(1, 250), rows=st.integers(1, 80), workers=st.integers(0, 70),
    title=st.text(max_size=40), trouble=st.text(max_size=200),
)  # fmt: skip
def test_a_frame_always_fits_and_has_no_control_characters(
    columns: int, rows: int, workers: int, title: str, trouble: str
) -> None:
    lines = shown(pace(5, workers=max(1, workers), trouble=trouble), columns, rows, title)
    assert 1 <= len(lines) <= max(1, rows - 1)
    for line in lines:
        assert cells(line) <= max(10, columns - 1)
        assert line.isprintable()


def test_the_display_shows_which_host_a_crawl_waits_for_and_why() -> None:
    made = pace(40)
    busy = PendingHost(host="busy.example", paused=True, reason="status 503", until=0.0, seconds=600.0, retries=1)
    other = PendingHost(host="other.example", paused=False, reason="", until=0.0, seconds=4.0, retries=2)
    counts = Counts(admitted=5, stored=2, waiting=2, later=1)
    made.note(59.0, WorkerReport(), [], counts, (0, 1), [busy, other])
    lines = shown(made, 100, 24)
    assert "at least 10 min left" in lines[0]
    assert "waiting for busy.example for 10 min (status 503), and 1 other host" in lines


def test_a_frame_can_be_drawn_before_the_first_report() -> None:
    assert shown(Rates("docs"), 80, 24)[0] == "docs  running  61 s"
    assert shown(Rates(), 80, 24)[-1] == "bottleneck  not known yet"


def test_a_graph_has_its_largest_value_at_the_top_and_shows_small_values() -> None:
    assert graph([0, 1, 50, 100], 1) == [" ▁▄█"]
    assert graph([0, 1, 50, 100], 2) == ["   █", " ▁██"]
    assert graph([0, 100], 1, PLAIN_BARS) == [" @"]
    assert graph([0, 0], 1) == ["  "]


def test_a_graph_of_a_long_crawl_combines_several_seconds() -> None:
    values, each = pace(100).rates(30)
    assert len(values) <= 30
    assert each == pytest.approx(4, abs=1)
    assert values == pytest.approx([10] * len(values))


# Log lines


@pytest.fixture
def log_entries(capsys: pytest.CaptureFixture[str]) -> Any:
    console.set_renderer(json_log.render_json)
    yield lambda: [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    console.set_renderer(None)


def test_a_log_line_is_one_object_with_a_time_a_level_and_its_fields(log_entries: Any) -> None:
    console.report("Crawl a\n  begins    now", event="crawl.started", crawl="a", host="", worker=None)
    console.warn("Beware.")
    first, second = log_entries()
    assert len(first.pop("time")) == len("2026-03-01T12:00:00.123Z")
    assert first == {"level": "info", "event": "crawl.started", "crawl": "a", "message": "Crawl a begins now"}
    assert (second["level"], second["event"], second["message"]) == ("warning", "warning", "Beware.")


def test_a_log_line_has_no_control_characters_and_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    console.set_renderer(json_log.render_json)
    try:
        console.report(
            "\x1b[2J\x7f\x9b1m\u202eé redis://me:top@host/0 and http://h/@someone", trouble="x password=top y"
        )
    finally:
        console.set_renderer(None)
    line = capsys.readouterr().err
    assert line.rstrip("\n").isascii()
    assert line.rstrip("\n").isprintable()
    assert "top" not in line
    assert "http://h/@someone" in line
    assert json.loads(line)["message"].startswith("\x1b[2J\x7f\x9b1m\u202eé redis://***@host/0 and")


def test_a_count_of_one_is_singular() -> None:
    assert [console.pluralize(number, "page") for number in (0, 1, 2000)] == ["0 pages", "1 page", "2,000 pages"]
    assert [console.size(number) for number in (0, 1, 1000)] == ["0 bytes", "1 byte", "1.0 kB"]


def test_a_line_for_people_has_no_secrets_either(capsys: pytest.CaptureFixture[str]) -> None:
    console.report("The store redis://:top@host/0 is unavailable.")
    assert capsys.readouterr().err == "The store redis://***@host/0 is unavailable.\n"


def test_every_event_has_a_description() -> None:
    package = Path(events.__file__).parents[1]
    texts = [path.read_text() for path in package.rglob("*.py")]
    used = {name for text in texts for name in re.findall(r'\bevent(?:: str)? ?= ?"([^"]*)"', text)}
    used |= {operation.event for operation in OPERATIONS.values()}
    # What a supervisor reports about its processes.
    used |= {f"worker.{kind}" for kind in ("died", "gone", "said")}
    assert used == set(events.EVENTS)
    assert set(events.EVENTS) >= events.WARNINGS


def test_json_for_a_terminal_has_no_control_characters_and_the_same_value() -> None:
    value = {"name": "a\x1b[2J\x9b2J\u2028\u202e\x7f\ud83d\ude00 \U000e0001 \xe9 \u65e5"}
    value["name"] = value["name"].encode("utf-16", "surrogatepass").decode("utf-16")
    text = console.printable_json(value)
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == value
