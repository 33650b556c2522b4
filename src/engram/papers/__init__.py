"""The tables and figures of five papers: published numbers, and reproductions under the same set-up."""
