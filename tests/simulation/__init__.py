"""The package's client, planners and producers on a simulated Kafka cluster, driven by a seed (docs/simulation.md)."""
