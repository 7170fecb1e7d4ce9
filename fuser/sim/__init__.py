"""NumPy model of the device: agents, memories, barriers, races."""
