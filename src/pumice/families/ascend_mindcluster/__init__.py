"""Ascend chips that MindCluster's device plugin cuts on demand, by AI cores (spec ascend part B)."""

from pumice.families.ascend_mindcluster.family import AscendMindCluster

__all__ = ["AscendMindCluster"]
