"""The papers' tables and figures: what was published, and what comes out here under the same set-up."""
