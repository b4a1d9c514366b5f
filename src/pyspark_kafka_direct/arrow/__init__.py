"""Slices of topics as Arrow, without Spark."""
