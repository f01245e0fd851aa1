"""Runs that prove the promises under failures: real processes, work from many clients, overlapping blows, checkers.

    python -m tools.jepsen --rounds 300 [--seed 7] [--subject servers]

| module | what is there |
|---|---|
| `history` | operations with their times and outcomes: what checkers read |
| `checkers` | pure: history and final state in, faults out |
| `tables` | the tables of the work, and the statements that make them |
| `clients` | threads that do one kind of work each and record it |
| `definitions` | the client that changes tables, partitions, topics and storages |
| `messages` | the topic's producer |
| `nemesis` | blows: how they are drawn, struck together and mended |
| `harm` | pauses, kills, links, disks, clocks: the parts that blows are made of |
| `subjects`, `servers`, `database`, `single` | what is started, and the blows that it offers |
| `final` | reads the final state of a subject |
| `run`, `report` | rounds over one started subject; what was found |
"""
