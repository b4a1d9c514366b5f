"""The options of every API: their definitions, parsers and typed values. Importing the package imports no modules."""
