"""The Kafka client: connections, metadata, coordinators, transactions and security. Importing it imports nothing more.

``cluster_client`` has topics, leaders and offsets; ``leader_requests`` and ``coordinator_client`` send requests to the
right broker and retry them; ``connection_pool`` has the process's connections; ``system`` has clocks and sockets.
"""
