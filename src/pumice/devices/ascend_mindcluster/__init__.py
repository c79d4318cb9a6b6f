"""Ascend chips that MindCluster's device plugin cuts on demand, by AI cores (spec ascend part B)."""
