"""Pictures of pipelines: stages and warps over time."""
