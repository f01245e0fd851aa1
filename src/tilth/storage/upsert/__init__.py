"""One row for each key: how new rows are written, which older rows they replace, and where those are found."""
