"""Files of rows: sorted parts with their row maps and key filters, and row segments."""
