"""How much is measured: full, or a tenth of it while something is being changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    quick: bool
    repeats: int

    def of(self, full: int) -> int:
        return full // 10 if self.quick else full
