"""Running kernels on a GPU: NVRTC, compile logs, cubin caches, driver, arrays, launches."""
