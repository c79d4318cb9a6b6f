"""Random histories of the whole plane in one process, in virtual time: the laboratory's API server, two schedulers with a
lease, the controllers, and on each node a kubelet and the device plugin, while the world does its worst.

    found = draw(seed, PlaneDoor, drive=virtually)
    print(shrunk(found, PlaneDoor, drive=virtually).text())

It is a door of ``tests.property.history``: steps are data, drawn by a seed, kept, replayed and shrunk by the same runner.
``processes`` runs and kills daemons, ``transport`` is the way between plugin and kubelet, ``node`` plays kubelet and runtime,
``judge`` says what must hold, ``kinds`` draws what happens. By every fourth seed one of the nodes has NPUs (``npus``,
``npu_judge``, ``npu_kinds``), in one of both modes. By every eighth the cards are had by claim as well (``claims``,
``claim_judge``, ``claim_kinds``), each node has a monitor, and programs have regions (``monitors``, ``monitor_judge``,
``monitor_kinds``), one shares its cards by MPS (``mps``, ``mps_judge``, ``mps_kinds``) or has upstream's plugin (``upstream``,
``upstream_judge``), or queues claim back what they deserve (``reclaim_judge``, ``reclaim_kinds``). ``world`` is what there is
and what befalls it, ``seen`` what is seen of it, ``door`` what must hold, ``loop`` the event loop. ``caught`` tells exceptions
that a daemon logs and survives. Schedulers and plugins may be the last release's own code (``last_release``), from the beginning
or exchanged amid a history (``releases``).
"""
