"""The node's mind: which cards there are, what is said about them, and what a container gets. Pure.

Events and snapshots in, plain effects out (``effects``); ``apps`` performs them. Rules: HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu.
"""
