"""ask_again.py COUNT: asks for a block and gives it back, often.

Says that it began, then [the longest wait in seconds, how many answers].
"""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
from driver import alloc, free, say, start

start()
say("begun")
longest = 0.0
answers = 0
for _ in range(int(sys.argv[1])):
    begun = time.monotonic()
    rc, pointer = alloc(64 << 20)
    longest = max(longest, time.monotonic() - begun)
    answers += rc in (0, 2)
    if rc == 0:
        free(pointer)
    time.sleep(0.002)
say([longest, answers])
