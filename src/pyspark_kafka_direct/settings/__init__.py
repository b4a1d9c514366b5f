"""Settings as typed values, one for each role. Importing it imports nothing more."""
