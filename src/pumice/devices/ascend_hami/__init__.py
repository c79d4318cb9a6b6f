"""Ascend NPUs in HAMi's mode: slices by template, soft shares, whole cards (Volcano pkg/scheduler/api/devices/ascend/hami,
part A)."""
