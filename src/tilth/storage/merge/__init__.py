"""New files from old ones: merges of parts, flushes of segments, rewrites of one part, compactions of deltas."""
