"""Slices of cards, whatever the device type: one manager, which writes down what is meant, calls the driver and writes down what
came of it; and whose slices are whose. A device type brings its driver's calls and its plans."""
