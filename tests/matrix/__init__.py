"""The vocabulary of the package as test data, run by the interpreter and by the GPU alike."""
