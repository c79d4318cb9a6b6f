"""The scheduler's state: nodes, cards, ledger, groups, pods and volumes, kept in line with the watch."""
