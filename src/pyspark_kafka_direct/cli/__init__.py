"""Shared code of command-line programs: creating topics and producing sample records."""
