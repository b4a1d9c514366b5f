"""Golden files: random and damaged inputs of the native kernel, with the right answers.

``data`` has one file for each kind of input, of JSON lines: an input and its answer. Bytes are strings of Latin-1. The
first answers come from decoders and encoders in Python. They were written apart from the kernel and removed when it
became mandatory, so an answer changes only if it was wrong. ``python -m tests.golden --write KIND`` creates the inputs
of a kind again, with the answers of the kernel: check new answers against another implementation.
"""
