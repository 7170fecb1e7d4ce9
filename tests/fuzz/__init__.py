"""Random fusions, the arrays they run on, and an oracle that bounds every element of the result."""
