"""A compiler of Java's regular expressions to Python's, for the names of topics."""

from pyspark_kafka_direct.planning.java_patterns._translator import translate

__all__ = ["translate"]
