"""The node's mind: which cards there are, what is said about them, and what a container gets. Pure.

Events and snapshots in, plain effects out (``effects``); ``apps`` performs them. Rules: spec nvidia-device-plugin.
"""
