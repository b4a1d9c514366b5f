"""The only room that talks to brokers.

Importing it imports nothing more. Its faces are

- ``wire.cluster``: ``Cluster`` (topics, leaders, offsets);
- ``wire.leaders``: requests about many partitions, sent to their leaders;
- ``wire.coordinator``: requests to the coordinator of a group or a transactional id;
- ``wire.transactions``: transactions of a transactional id; ``wire.topics``: creating topics, and their configuration;
- ``wire.fetch``: fetch requests of one partition, or of many;
- ``wire.pool``: the process's connections; ``wire.connection``: one of them;
- ``wire.system``: clocks, pauses, chance and sockets.

``security`` makes connections safe, ``messages`` has Kafka's protocol messages. Names that begin with an underscore are
the room's own. Typed settings come from the room ``settings``.
"""
