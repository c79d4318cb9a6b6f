"""What the scheduler knows: nodes, cards, ledger, groups, pods and volumes, kept in line with the watch."""
