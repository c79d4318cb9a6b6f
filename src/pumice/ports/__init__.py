"""The inside's view of the world, as Protocols. Adapters and simulators implement them."""
