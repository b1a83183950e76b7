"""Store URLs: what they may say, and that no error shows a password."""

from __future__ import annotations

import pytest

from shoal.errors import SettingsError, StoreUnavailable
from shoal.settings.secrets import masked
from shoal.store import Store
from shoal.store.address import Endpoint, parse_address


@pytest.mark.parametrize(
    ("url", "kind", "endpoints"),
    [
        ("redis://localhost", "standalone", (Endpoint("localhost", 6379),)),
        ("redis://db.example:7000/2", "standalone", (Endpoint("db.example", 7000),)),
        ("valkey://[::1]:7000", "standalone", (Endpoint("::1", 7000),)),
        ("rediss://h", "standalone", (Endpoint("h", 6379),)),
        ("unix:///run/valkey.sock?db=3", "standalone", (Endpoint(path="/run/valkey.sock"),)),
        ("redis+sentinel://a,b:7/crawl/1", "sentinel", (Endpoint("a", 26379), Endpoint("b", 7))),
        ("redis+cluster://a:1,[::1]:2", "cluster", (Endpoint("a", 1), Endpoint("::1", 2))),
    ],
)
def test_a_store_url_names_its_kind_and_its_servers(url: str, kind: str, endpoints: tuple[Endpoint, ...]) -> None:
    address = parse_address(url)
    assert (address.kind, address.endpoints) == (kind, endpoints)


def test_user_password_database_and_service_are_read_from_the_url() -> None:
    address = parse_address("redis+sentinel://us%40er:p%2Fw@a:1/crawl/4?sentinel_password=s3")
    assert (address.credentials.username, address.credentials.password) == ("us@er", "p/w")
    assert (address.service, address.db, address.sentinel_credentials.password) == ("crawl", 4, "s3")


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "localhost:6379",
        "redis://h:port",
        "redis://h:70000",
        f"redis://h:{'1' * 5000}",
        f"redis://h/{'1' * 5000}",
        "redis://h/notanumber",
        "redis://a,b",
        "redis://h?colour=red",
        "redis://h?ssl_ca_certs=x",
        "rediss://h?ssl_ca_certs=/nowhere/ca.pem",
        "rediss://h?ssl_cert_reqs=maybe",
        "redis+sentinel://h",
        "redis+cluster://h/3",
        "unix://",
    ],
)
def test_an_invalid_url_is_refused_without_showing_its_password(url: str) -> None:
    secret = "hunter2"
    with_password = url.replace("://", f"://me:{secret}@") if "://" in url else url
    with pytest.raises(SettingsError) as caught:
        parse_address(with_password)
    assert secret not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_passwords_are_masked_wherever_a_url_carries_them() -> None:
    assert masked("redis://u:p@h:1/0") == "redis://***@h:1/0"
    assert masked("redis://:p@h") == "redis://***@h"
    assert masked("redis+sentinel://h/s?sentinel_password=x&db=1") == "redis+sentinel://h/s?sentinel_password=***&db=1"
    assert "secret" not in repr(parse_address("redis://u:secret@h"))


async def test_an_unavailable_store_is_reported_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await Store.open("redis://me:hunter2@127.0.0.1:1", timeout_seconds=0.2)
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1:1" in str(caught.value)
    assert "refused" in str(caught.value)
