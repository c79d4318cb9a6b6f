"""Random histories of a cluster under a scheduler: steps as data, drawn by a seed, played through a door, judged by a checker.

    found = play(seed, EngineDoor)          # None, or the history and what it broke
    print(shrunk(found).text())             # the shortest history that still breaks the same promise

A *kind* of step (``registry``) looks at the objects and draws operations; an operation is plain data and does nothing where its
object is gone, so a history can be replayed with steps left out. A *door* carries operations out: ``engine_door`` on the
engine alone, ``daemon_door`` on the whole daemon before an API server that fails.
"""
