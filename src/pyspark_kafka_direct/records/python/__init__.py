"""The Python decoder and encoder: oracles and replacements of the native ones."""
