"""What users type: `FusionDefinition`, its operations, tensors, and `@fuse`."""
