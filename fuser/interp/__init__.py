"""Run kernel IR on the modelled device."""
