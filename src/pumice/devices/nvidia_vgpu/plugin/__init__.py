"""The daemon that serves these devices on a node, its command and its options: it touches the world, and only it does."""
