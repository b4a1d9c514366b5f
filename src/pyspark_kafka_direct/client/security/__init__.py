"""TLS, SASL, OAuth tokens and certificates. Importing it imports nothing more."""
