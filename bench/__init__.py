"""The benchmark: this package's data source beside Spark's JVM connector and two Python clients."""
