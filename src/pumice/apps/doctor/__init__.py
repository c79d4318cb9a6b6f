"""What is looked at on a node to say what is wrong with it."""
