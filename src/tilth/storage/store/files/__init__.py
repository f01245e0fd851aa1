"""Files of tables: begun, read, copied, removed, whatever their store is."""
