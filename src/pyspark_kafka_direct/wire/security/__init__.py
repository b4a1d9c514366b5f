"""TLS, logins, tokens and certificates: how a connection is made safe. Importing it imports nothing more."""
