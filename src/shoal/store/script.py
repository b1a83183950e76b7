"""A Lua script as the store sends it: its name, its source and the SHA-1 the server knows it by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script. Build it once: the SHA-1 is computed here and never again."""

    name: str
    source: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        # SHA-1 is the name the Redis protocol gives to scripts, not a protection.
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)
