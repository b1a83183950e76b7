"""A Lua script as the store sends it: its name, its source and the SHA-1 the server knows it by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script. Build it once at import: the SHA-1 is computed here and never again.

    With `stamped`, the store puts the run id of the server the call really goes to in front of the
    arguments (ARGV[1]). A caller cannot do that itself: between reading a run id and sending the
    call, the connection may be lost and a retry may reach another server.
    """

    name: str
    source: str
    stamped: bool = False
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        # SHA-1 is the name the Redis protocol gives to scripts, not a protection.
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)
