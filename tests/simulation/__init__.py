"""The package's client, planners and producers on a simulated Kafka cluster (tests/evidence/simulation.md)."""
