"""Work that makes one part of several parts, or of segments, of a partition: MERGE and FLUSH."""
