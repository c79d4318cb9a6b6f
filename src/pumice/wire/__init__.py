"""Every foreign string, once: parse_x beside render_x, proved by round trips."""
