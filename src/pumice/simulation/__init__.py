"""The scheduler's engine in virtual time: pods arrive, run and leave, nodes fail, and what became of it is measured."""
