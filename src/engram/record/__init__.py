"""What a run leaves behind, as plain values: no torch at import."""
