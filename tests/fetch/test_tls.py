"""Certificates are verified, and the problem with an invalid one is named."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shoal.errors import SettingsError
from shoal.fetch import Fetcher, Request
from shoal.fetch.tls import authorities
from shoal.politeness.backoff import Fault
from shoal.settings import FetchSettings
from tests.fetch.failure import failure
from tests.servers import program
from tests.site.hostile import Connection, Hostile, keep, ok

SETTINGS = FetchSettings(allow_networks="127.0.0.0/8")
SITE = {"*": keep(ok(b"secure"))}


async def here(host: str) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """The one authority that is trusted in this test."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    return ca


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def test_a_site_with_a_good_certificate_is_fetched_and_its_connection_kept(authority):
    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile(SITE, tls=serving(authority.issue_cert("site.test"))) as site:
        for _ in range(3):
            page = await fetcher.fetch(Request(url=site.url(host="site.test")))
            assert page.body == b"secure"
        assert site.connections == 1
        await fetcher.close()


async def test_the_time_of_the_handshake_is_recorded(authority):
    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile(SITE, tls=serving(authority.issue_cert("site.test"))) as site:
        times = (await fetcher.fetch(Request(url=site.url(host="site.test")))).timings
        assert 0 < times.name_lookup <= times.connect <= times.tls <= times.first_byte <= times.total
        await fetcher.close()


def self_signed(tmp_path: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "site.test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("site.test")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = tmp_path / "self.pem"
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


@pytest.mark.parametrize("kind", ["certificate expired", "wrong name", "self-signed", "unknown CA"])
async def test_the_problem_with_a_certificate_is_named(authority, tmp_path, kind):
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    context = {
        "certificate expired": lambda: serving(authority.issue_cert("site.test", not_after=past)),
        "wrong name": lambda: serving(authority.issue_cert("other.test")),
        "self-signed": lambda: self_signed(tmp_path),
        "unknown CA": lambda: serving(trustme.CA().issue_cert("site.test")),
    }[kind]()
    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile(SITE, tls=context) as site:
        error = await failure(fetcher, site.url(host="site.test"))
        assert (error.fault, error.reason) == (Fault.TLS, f"tls: {kind}"), error
        assert site.requests == []
        await fetcher.close()


async def test_a_private_authority_is_not_trusted_by_default(monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    file, folder = authorities()
    assert Path(file or folder).exists()
    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile(SITE, tls=serving(trustme.CA().issue_cert("site.test"))) as site:
        error = await failure(fetcher, site.url(host="site.test"))
        assert (error.fault, error.reason) == (Fault.TLS, "tls: unknown CA")
        await fetcher.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_server_that_speaks_only_old_tls_is_refused(authority):
    context = serving(authority.issue_cert("site.test"))
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile(SITE, tls=context) as site:
        error = await failure(fetcher, site.url(host="site.test"))
        assert (error.fault, error.reason) == (Fault.TLS, "tls")
        await fetcher.close()


async def test_https_to_a_plain_http_server_is_a_tls_fault(authority):
    async def plain(connection: Connection) -> None:
        await connection.send(ok(b"plain"))

    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile({}, greeting=plain) as site:
        error = await failure(fetcher, site.url(host="site.test").replace("http:", "https:"))
        assert (error.fault, error.reason) == (Fault.TLS, "tls")
        await fetcher.close()


async def test_a_connection_reset_during_the_handshake_is_not_a_tls_fault(authority):
    async def reset(connection: Connection) -> None:
        await connection.reader.read(100)
        connection.reset()

    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile({}, greeting=reset) as site:
        error = await failure(fetcher, site.url(host="site.test").replace("http:", "https:"))
        assert (error.fault, error.reason) == (Fault.RESET, "reset")
        await fetcher.close()


@pytest.mark.parametrize("length", ["Content-Length: 1000", "Connection: close"])
async def test_a_body_cut_off_over_tls_is_truncated(authority, length):
    """Without its last word (close_notify) a connection may have been cut by anybody, so no end is believed."""

    async def short(connection: Connection) -> None:
        await connection.send(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\nshort".encode())
        await asyncio.sleep(0.05)
        connection.writer.transport.abort()

    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile({"*": short}, tls=serving(authority.issue_cert("site.test"))) as site:
        error = await failure(fetcher, site.url(host="site.test"))
        assert (error.fault, error.reason) == (Fault.TRUNCATED, "truncated"), error
        await fetcher.close()


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_missing_certificates_are_reported_at_the_start(monkeypatch, name):
    monkeypatch.setenv(name, "/nowhere/at/all")
    with pytest.raises(SettingsError, match=rf"\A{name} is '/nowhere/at/all', which does not exist"):
        Fetcher(SETTINGS)


async def test_a_folder_of_certificates_is_trusted(authority, tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    # The names by which OpenSSL finds certificates in a folder.
    openssl = program("openssl", "apt-get install openssl")
    subprocess.run([openssl, "rehash", str(folder)], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    fetcher = Fetcher(SETTINGS, resolver=here)
    async with Hostile(SITE, tls=serving(authority.issue_cert("site.test"))) as site:
        assert (await fetcher.fetch(Request(url=site.url(host="site.test")))).body == b"secure"
        await fetcher.close()
