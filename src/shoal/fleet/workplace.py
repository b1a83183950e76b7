"""What worker processes are given: a folder for their files, and all settings."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from shoal.settings import FIELDS, Settings


class Workplace:
    """Where the files of workers are: beside an embedded store, else in a folder that goes with us."""

    def __init__(self, settings: Settings) -> None:
        self.embedded = not settings.store.url
        self.folder = Path(settings.store.folder).absolute() / "workers"
        if not self.embedded:
            self.folder = Path(tempfile.mkdtemp(prefix="shoal-workers-"))

    def close(self) -> None:
        if not self.embedded:
            shutil.rmtree(self.folder, ignore_errors=True)


def orders(settings: Settings) -> dict[str, Any]:
    """All settings, for processes that look at no variable of their own: they may be secret, and are settled here."""
    plain = {key: getattr(getattr(settings, field.section), field.name) for key, field in FIELDS.items()}
    return {**plain, "outputs": settings.outputs}
