"""Command line, configuration, plots, and one module for each published table or figure."""
