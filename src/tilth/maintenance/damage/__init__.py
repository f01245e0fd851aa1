"""Files that cannot be read: the book of those that are known, and the parts that work leaves out because of them."""
