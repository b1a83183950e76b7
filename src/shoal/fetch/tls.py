"""Which certificate authorities are trusted: those of the system, as for every other program of the machine.

So an administrator adds the authority of an intranet in one place, and system updates remove bad authorities. libcurl's
own default is a path on the machine on which it was built. SSL_CERT_FILE and SSL_CERT_DIR replace the system's
authorities, as for OpenSSL.
"""

from __future__ import annotations

import importlib
import os
import ssl
from pathlib import Path

from shoal.errors import SettingsError

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def authorities() -> tuple[str, str]:
    """The file and the folder of certificates to verify with; one of them may be ''."""
    file, folder = os.environ.get("SSL_CERT_FILE", ""), os.environ.get("SSL_CERT_DIR", "")
    if file or folder:
        for name, value, there in (
            ("SSL_CERT_FILE", file, Path(file).is_file()),
            ("SSL_CERT_DIR", folder, Path(folder).is_dir()),
        ):
            if value and not there:
                raise SettingsError(f"{name} is {value!r}, which does not exist; name the certificates to trust.")
        return file, folder
    paths = ssl.get_default_verify_paths()
    for bundle in (paths.openssl_cafile, *_BUNDLES):
        if Path(bundle).is_file():
            return bundle, ""
    try:
        # Systems without a store, such as the smallest containers, may have this package's copy of Mozilla's.
        return str(importlib.import_module("certifi").where()), ""
    except ImportError:
        raise SettingsError(
            "This machine has no certificates to verify https with; install ca-certificates or set SSL_CERT_FILE."
        ) from None
