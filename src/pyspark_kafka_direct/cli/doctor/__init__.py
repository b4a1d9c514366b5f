"""The checks of ``kafka-direct doctor``: this Python, brokers, topics, groups and clocks, here and on executors."""
