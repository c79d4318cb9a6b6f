"""The kubelet twin: one node's agent that speaks the device plugin protocol and runs pods as local processes.

It does what ``ADR 120`` observed of kubelet 1.36. Where it departs, the place says so:

* containers are processes of this machine's own root (``runtime``), with a network of their own where there is one
  (``network``);
* the containers of a node end with the cluster's process; when it comes back they are restarted, and a pod that held
  devices waits for its device plugin instead of being refused.
"""
