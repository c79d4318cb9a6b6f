"""Ascend NPUs in HAMi's mode: slices by template, soft shares, whole cards (spec ascend, part A)."""
