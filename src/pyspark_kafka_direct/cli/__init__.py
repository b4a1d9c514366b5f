"""What programs of the command line do beyond their room: topics to begin with, and records to try things on."""
