"""The tables and figures of the papers, and what goes beyond them: `trajopt experiment NAME`, one folder for each paper."""
