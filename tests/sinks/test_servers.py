"""Tables of servers: created by many workers at once, kept through restarts and lost replies, refused if foreign."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from shoal.errors import SinkRefused
from shoal.sinks import Sink, open_sink, retry
from shoal.sinks.contract import Stored
from shoal.sinks.sql import server
from tests.proxy import proxy
from tests.servers import WAIT_SECONDS, free_port
from tests.sinks.databases import PASSWORD, Database, mariadb, postgresql
from tests.sinks.outputs import item, mounted, page, read_mariadb, read_postgresql
from tests.sinks.test_contract import fill


@contextlib.asynccontextmanager
async def opened(uri: str, troubles: list[str] | None = None) -> AsyncIterator[Sink]:
    sink = open_sink(uri, worker="worker", on_trouble=None if troubles is None else troubles.append)
    try:
        await sink.open()
        yield sink
    finally:
        await sink.close()


def rows(database: Database, table: str) -> list[dict[str, Any]]:
    read = read_postgresql if database.scheme == "postgresql" else read_mariadb
    return sorted(read((database, table)), key=lambda row: row["url"])


async def until(true: Any) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not true():  # noqa: ASYNC110 - another process gets there
            await asyncio.sleep(0.02)


async def refusal(uri: str) -> str:
    with pytest.raises(SinkRefused) as refused:
        async with opened(uri):
            pass
    sentence = str(refused.value)
    assert sentence.startswith("The output ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    for secret in (PASSWORD, "pass%2F", "hunter2"):
        assert secret not in sentence
    return sentence


@pytest.mark.full
async def test_workers_that_start_together_create_one_table(database: Database, table: str) -> None:
    async def work(number: int) -> None:
        async with opened(database.uri(table=table)) as sink:
            await sink.write([page(number)], b"")

    await asyncio.gather(*(work(number) for number in range(12)))
    assert len(rows(database, table)) == 12


async def test_many_workers_at_once_add_a_missing_column_once(database: Database, table: str) -> None:
    async with opened(database.uri(table=table)) as sink:
        await sink.write([page(1)], b"")
    for name in ("etag", "depth", "fetched_at", "redirects"):
        database.sql(f"ALTER TABLE {table} DROP COLUMN {name}")

    async def work(number: int) -> None:
        async with opened(database.uri(table=table)) as sink:
            await sink.write([page(number, etag="new", depth=3)], b"")

    await asyncio.gather(*(work(number) for number in range(2, 8)))
    stored = rows(database, table)
    assert [(row["etag"], row["depth"]) for row in stored] == [("", 0)] + [("new", 3)] * 6
    assert stored[0]["redirects"] == []


@pytest.mark.parametrize(
    "definition",
    [
        "name VARCHAR(10)",
        "id INT PRIMARY KEY, crawl VARCHAR(10), url VARCHAR(10)",
        "id INT, url VARCHAR(9) PRIMARY KEY",
    ],
)
async def test_a_table_of_another_program_is_refused(database: Database, table: str, definition: str) -> None:
    database.sql(f"CREATE TABLE {table} ({definition})")
    assert f"has a table {table} that is not from Shoal; choose another with ?table=NAME." in await refusal(
        database.uri(table=table)
    )


async def test_long_urls_that_differ_at_the_end_or_in_case_are_different_rows(database: Database, table: str) -> None:
    long = "x" * 8000
    async with opened(database.uri(table=table)) as sink:
        for _ in range(2):
            await sink.write([page(0), *(page(f"{long}{end}") for end in ("a", "b", "A", "a ", "á"))], b"")  # type: ignore[arg-type]
    assert len({row["url"] for row in rows(database, table)}) == 6
    assert len(rows(database, table)) == 6


async def test_an_unchanged_page_keeps_its_row_and_gets_newer_validators(database: Database, table: str) -> None:
    before = page(1, title="kept", etag="old", last_modified="Mon", bytes=7)
    async with opened(database.uri(table=table)) as sink:
        await sink.write([before], b"")
        await sink.write([page(1, status=304, title="", text="", etag="new", fetched_at=1800000000.0)], b"")
        await sink.write([page(2, title="both"), page(2, status=304, title="", last_modified="Tue")], b"")
    first, second = rows(database, table)
    assert (first["status"], first["title"], first["text"], first["bytes"]) == (200, "kept", before.text, 7)
    assert (first["etag"], first["last_modified"], first["fetched_at"]) == ("new", "Mon", "2027-01-15T08:00:00.000Z")
    assert (second["status"], second["title"], second["last_modified"]) == (200, "both", "Tue")


@pytest.mark.full
async def test_workers_that_write_the_same_rows_do_not_deadlock(database: Database, table: str) -> None:
    log = database.folder / "log"
    before = log.stat().st_size
    chance = random.Random(1)

    async def work(name: str) -> None:
        async with opened(database.uri(table=table)) as sink:
            for _ in range(15):
                numbers = chance.sample(range(300), 200)
                await sink.write(
                    [page(number, worker=name, status=chance.choice([200, 304])) for number in numbers], b""
                )

    await asyncio.gather(*(work(f"worker{number}") for number in range(6)))
    assert len(rows(database, table)) == 300
    assert b"deadlock" not in log.read_bytes()[before:].lower()


@pytest.mark.full
@pytest.mark.parametrize("more", ["", "&table_per_spider"])
async def test_workers_that_replace_the_same_items_leave_the_items_of_one_visit(
    database: Database, table: str, more: str
) -> None:
    log = database.folder / "log"
    before = log.stat().st_size
    chance = random.Random(1)

    async def work(name: str) -> None:
        async with opened(database.uri(table=table) + more) as sink:
            for turn in range(10):
                records: list[Stored] = []
                for number in chance.sample(range(100), 60):
                    count = chance.randrange(5)
                    data = {"visit": f"{name}/{turn}", "count": count}
                    records += [page(number, spider="books"), *(item(number, n + 1, data) for n in range(count))]
                await sink.write(records, b"")

    await asyncio.gather(*(work(f"worker{number}") for number in range(6)))
    columns = "visit, count" if more else "JSON_VALUE(data, '$.visit'), JSON_VALUE(data, '$.count')"
    if database.scheme == "postgresql" and not more:
        columns = "data->>'visit', data->>'count'"
    name = f"{table}_items{'_books' if more else ''}"
    visits: dict[str, list[tuple[str, str, str]]] = {}
    for line in database.sql(f"SELECT CONCAT_WS(' ', url, number, {columns}) FROM {name}").decode().splitlines():  # noqa: S608
        url, number, visit, count = line.split()
        visits.setdefault(url, []).append((number, visit, count))
    assert len(visits) > 50
    for items in visits.values():
        assert len({visit for _, visit, _ in items}) == 1, "the items of one visit"
        assert sorted(number for number, _, _ in items) == [str(n + 1) for n in range(int(float(items[0][2])))]
    assert b"deadlock" not in log.read_bytes()[before:].lower()


@pytest.mark.chaos
async def test_a_sink_waits_for_a_restarting_server_and_loses_nothing(database: Database, table: str) -> None:
    troubles: list[str] = []
    async with opened(database.uri(table=table), troubles) as sink:
        await sink.write([page(1)], b"")
        for number, end in ((2, database.stop), (3, database.kill)):
            end()
            troubles.clear()
            write = asyncio.create_task(sink.write([page(number)], b""))
            await until(lambda: troubles)
            assert troubles[0].startswith(f"output {database.scheme}://***@127.0.0.1:")
            assert troubles[0].endswith("; waiting")
            database.start()
            await asyncio.wait_for(write, WAIT_SECONDS)
            assert troubles[-1] == ""
    assert [row["url"][-1] for row in rows(database, table)] == ["1", "2", "3"]


@pytest.mark.chaos
@pytest.mark.full
async def test_a_server_killed_between_batches_keeps_one_row_per_key(database: Database, table: str) -> None:
    written: set[str] = set()
    going = True

    async def work(name: str, first: int) -> None:
        async with opened(database.uri(table=table)) as sink:
            number = first
            while going:
                records = [page(n, worker=name) for n in range(number, number + 20)]
                await sink.write(records, b"")
                written.update(record.url for record in records)
                # Half of them again, and by the others too.
                number += 10

    workers = [asyncio.create_task(work(f"worker{number}", number * 50)) for number in range(3)]
    for _ in range(3):
        count = len(written)
        await until(lambda count=count: len(written) > count + 30)
        await asyncio.to_thread(database.kill)
        await asyncio.to_thread(database.start)
    going = False
    await asyncio.gather(*workers)
    urls = [row["url"] for row in rows(database, table)]
    assert len(urls) == len(set(urls))
    assert written <= set(urls)


@pytest.mark.chaos
async def test_a_row_whose_commit_response_was_lost_is_stored_once(database: Database, table: str) -> None:
    troubles: list[str] = []
    async with proxy(database.port) as between, opened(database.uri(table=table, port=between.port), troubles) as sink:
        await sink.write([page(0)], b"")
        between.swallow_replies = True
        write = asyncio.create_task(sink.write([page(1), page(2)], b""))
        await until(lambda: len(rows(database, table)) == 3)
        assert not write.done()
        between.swallow_replies = False
        between.cut()
        await asyncio.wait_for(write, WAIT_SECONDS)
        assert troubles == [], "a connection that is made again at once is nothing to tell"
        await sink.write([page(3)], b"")
    assert [row["url"][-1] for row in rows(database, table)] == ["0", "1", "2", "3"]


@pytest.mark.chaos
async def test_a_silent_server_is_reconnected_and_the_write_is_repeated(
    database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[str] = []
    async with proxy(database.port) as between, opened(database.uri(table=table, port=between.port), troubles) as sink:
        monkeypatch.setattr(retry, "RESPONSE_SECONDS", 0.3)
        between.silent = True
        write = asyncio.create_task(sink.write([page(1)], b""))
        await until(lambda: troubles)
        assert troubles[0].endswith(" does not respond; waiting")
        between.silent = False
        await asyncio.wait_for(write, WAIT_SECONDS)
    assert len(rows(database, table)) == 1


async def test_a_sink_waits_for_a_server_that_is_not_running_yet(database: Database, table: str) -> None:
    troubles: list[str] = []
    port = free_port()
    sink = open_sink(database.uri(table=table, port=port), worker="worker", on_trouble=troubles.append)
    opening = asyncio.create_task(sink.open())
    await until(lambda: troubles)
    shown = f"{database.scheme}://***@127.0.0.1:{port}/shoal?table={table}"
    assert troubles == [f"output {shown} cannot be reached (Connection refused); waiting"]
    opening.cancel()
    await asyncio.wait({opening})
    await sink.close()


async def test_a_table_dropped_during_a_crawl_is_created_again(database: Database, table: str) -> None:
    async with opened(database.uri(table=table)) as sink:
        await sink.write([page(1)], b"")
        database.sql(f"DROP TABLE {table}")
        await sink.write([page(2)], b"")
    assert [row["url"][-1] for row in rows(database, table)] == ["2"]


async def test_a_wrong_password_user_or_database_is_refused(database: Database) -> None:
    assert "shoal" in await refusal(database.uri(login="shoal:hunter2"))
    for login in ("shoal:hunter2", "nobody:hunter2", "nobody"):
        assert (await refusal(database.uri(login=login))).endswith("; check user and password.")
    assert (await refusal(database.uri("nowhere"))).endswith("; create it first.")


async def test_a_user_who_may_not_create_tables_is_refused_until_the_table_exists(
    database: Database, table: str
) -> None:
    user = f"u{table}"
    if database.scheme == "postgresql":
        database.sql(f"CREATE USER {user} PASSWORD 'hunter2'")
        name, missing = user, "permission denied for schema public; ask an administrator to grant it."
    else:
        database.sql(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'hunter2'")
        name, missing = f"{user}@'127.0.0.1'", "; ask an administrator to grant it."
    uri = database.uri(login=f"{user}:hunter2", table=table)
    assert (await refusal(uri)).endswith(missing)
    async with opened(database.uri(table=table)):
        pass
    database.sql(f"GRANT SELECT, INSERT, UPDATE ON {table} TO {name}")
    async with opened(uri) as sink:
        await sink.write([page(1)], b"")
        await sink.write([page(1)], b"")
        database.sql(f"REVOKE INSERT ON {table} FROM {name}")
        with pytest.raises(SinkRefused, match="; ask an administrator to grant it"):
            await sink.write([page(2)], b"")
    assert len(rows(database, table)) == 1


async def test_a_database_that_cannot_store_every_character_is_refused(postgresql_server: Database) -> None:
    postgresql_server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "has the encoding LATIN1, which cannot hold every page" in await refusal(postgresql_server.uri("latin"))


async def test_an_unknown_option_is_refused(database: Database) -> None:
    assert "tabel" in await refusal(database.uri(tabel="pages"))


async def test_commits_are_durable_even_if_synchronous_commit_is_off(postgresql_server: Database, table: str) -> None:
    uri = postgresql_server.uri(table=table, synchronous_commit="off")
    async with opened(uri) as sink:
        assert await sink._connection.fetchval("SHOW synchronous_commit") == "on"  # type: ignore[attr-defined]


async def test_a_table_can_be_in_a_schema_and_have_a_name_in_any_case(postgresql_server: Database, table: str) -> None:
    postgresql_server.sql(f"CREATE SCHEMA s{table}")
    uri = postgresql_server.uri(table=f"s{table}.Order")
    async with opened(uri) as sink:
        await sink.write([page(1)], b"")
    async with opened(uri) as sink:
        await sink.write([page(2)], b"")
    assert postgresql_server.sql(f'SELECT count(*) FROM s{table}."Order"').split() == [b"2"]  # noqa: S608
    missing = await refusal(postgresql_server.uri(table=f"absent{table}.pages"))
    assert f'schema "absent{table}" does not exist' in missing


def test_a_batch_of_large_pages_is_split_into_several_statements() -> None:
    lengths = (10, 9_000_000, 10, 4_000_000, 3_900_000)
    records = [page(number, text="x" * length) for number, length in enumerate(lengths)]
    groups = [[int(record.url[-1]) for record in group] for group in server.statements(records)]
    assert groups == [[0], [1], [2, 3, 4]]
    items = [item(number, data={"text": "x" * 3_000_000}) for number in range(3)]
    groups = [[int(record.url[-1]) for record in group] for group in server.statements([*records, *items])]
    assert groups == [[0, 0], [1, 1], [2, 2, 3], [4]], "a page is with its items"
    assert list(server.statements([])) == []


@pytest.mark.full
@pytest.mark.chaos
async def test_a_sink_waits_for_a_server_with_a_full_disk(table: str) -> None:
    """The table is on a small disk of its own."""
    with contextlib.ExitStack() as stack:
        there = stack.enter_context(postgresql())
        options = f"size=4m,mode=0700,uid={there.folder.stat().st_uid}"
        small = stack.enter_context(mounted(there.folder / "small", "-o", options))
        there.sql(f"CREATE TABLESPACE small LOCATION '{small}'")
        there.sql("ALTER DATABASE shoal SET default_tablespace = small")
        troubles: list[str] = []
        async with opened(there.uri(table=table), troubles) as sink:
            ballast = small / "ballast"
            fill(ballast)
            records = [page(number, text=random.randbytes(20_000).hex()) for number in range(40)]
            write = asyncio.create_task(sink.write(records, b""))
            await until(lambda: troubles)
            assert "has no space left on its disk" in troubles[0]
            assert not write.done()
            ballast.unlink()
            await asyncio.wait_for(write, WAIT_SECONDS)
            assert troubles[-1] == ""
        assert len(rows(there, table)) == 40


async def test_a_unique_index_that_would_merge_pages_is_refused(mariadb_server: Database, table: str) -> None:
    async with opened(mariadb_server.uri(table=table)):
        pass
    mariadb_server.sql(f"CREATE UNIQUE INDEX one_title ON {table} (title(50))")
    assert "has a unique index one_title beside its key" in await refusal(mariadb_server.uri(table=table))


async def test_a_text_beyond_the_maximum_packet_size_of_the_server_is_cut(mariadb_server: Database, table: str) -> None:
    text = "é'" * 7_000_000
    async with opened(mariadb_server.uri(table=table)) as sink:
        await sink.write([page(1), page(2, text=text), page(3)], b"")
    query = f"SELECT CHAR_LENGTH(text), LEFT(text, 3), title FROM {table} ORDER BY url"  # noqa: S608
    output = mariadb_server.sql(query).decode()
    first, second, third = (line.split("\t") for line in output.splitlines())
    assert (first[2], second[2], third[2]) == ("Page 1", "Page 2", "Page 3")
    assert second[1] == "é'é"
    assert 4_000_000 < int(second[0]) < len(text)


async def test_mysql_connections_use_tls(tmp_path: Path, table: str) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # the server is another user
        certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
        certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
        for file in folder.iterdir():
            file.chmod(0o644)
        options = [f"--ssl-cert={folder}/cert.pem", f"--ssl-key={folder}/key.pem", "--require-secure-transport=ON"]
        there = stack.enter_context(mariadb(*options))
        async with opened(there.uri(table=table, ssl_ca=str(tmp_path / "ca.pem"))) as sink:
            await sink.write([page(1)], b"")
        assert len(rows(there, table)) == 1
        assert "has a certificate that is not trusted: " in await refusal(there.uri(ssl_ca=str(tmp_path / "other.pem")))
        assert "refused: " in await refusal(there.uri())
    assert "has an ssl_ca that cannot be read: No such file" in await refusal(
        there.uri(ssl_ca=str(tmp_path / "absent.pem"))
    )
