"""The size of a measurement: full, or a tenth of it during development."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    quick: bool
    repeats: int

    def of(self, full: int) -> int:
        return full // 10 if self.quick else full
