"""What every door needs of Spark: the task that reads a range, and the care of Python workers."""
