"""A client for schema registries with Confluent's REST API, and the names of subjects. Importing it imports nothing."""
