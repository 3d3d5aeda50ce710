"""Reproductions of tables and figures of papers, and further experiments: `trajopt experiment NAME`, one folder per paper."""
