"""A snapshot as a DataFrame: which way the rows of each part are read, the native scan, what tasks read in Python."""
