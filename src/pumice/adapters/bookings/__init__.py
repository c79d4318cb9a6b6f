"""The programs of ``pumice run`` on this machine: one file of bookings, and which of them live."""
