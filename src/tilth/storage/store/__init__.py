"""Names on the store and the bytes behind them: written once, summed, removed; files that tasks share."""
