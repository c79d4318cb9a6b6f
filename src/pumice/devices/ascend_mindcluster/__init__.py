"""Ascend chips that MindCluster's device plugin cuts on demand, by AI cores (Volcano pkg/scheduler/api/devices/ascend/hami
part B)."""
