"""Ascend NPUs in HAMi's mode: slices by template, soft shares, whole cards (spec ascend, part A)."""

from pumice.families.ascend_hami.family import AscendHami

__all__ = ["AscendHami"]
