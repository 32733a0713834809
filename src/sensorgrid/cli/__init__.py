"""The command line: thin. Arguments in, calls, tables out."""
