"""What Spark's driver and tasks need to decode and encode the columns of a frame."""
