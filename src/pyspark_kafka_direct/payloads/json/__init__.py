"""JSON: structs and VARIANT."""
