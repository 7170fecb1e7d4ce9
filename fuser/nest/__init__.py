"""Loop nests: loops, tensor statements and allocations, before any index exists."""
