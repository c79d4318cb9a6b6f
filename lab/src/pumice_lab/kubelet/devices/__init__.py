"""The device manager: plugins, their lists, who holds which device."""
