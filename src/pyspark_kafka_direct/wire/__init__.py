"""The only room that talks to brokers: settings, connections, cluster metadata, offsets, fetch requests."""
