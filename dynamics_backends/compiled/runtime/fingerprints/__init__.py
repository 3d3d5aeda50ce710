"""Fingerprints of generated code: hashes of the sources, versions and structures that its text depends on."""
