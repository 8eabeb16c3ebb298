"""The command line: one module for each verb, imported when it is used."""
