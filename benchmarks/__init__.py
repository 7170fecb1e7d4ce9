"""Speed of generated kernels beside the hand-written ceilings and the peers, in one run."""
