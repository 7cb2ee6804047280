"""The bridge to PyTorch: torch modules stream, train online, and compile to the engine."""
