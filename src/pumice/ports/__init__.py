"""What the inside needs of the world, as Protocols. Adapters and twins implement them."""
