"""One row for each key: how new rows land, which older rows they replace, and where those are found."""
