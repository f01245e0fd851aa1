"""Runs that prove the promises under failures: real processes, statements of many clients, overlapping blows, checkers.

    python -m tools.jepsen --rounds 300 [--seed 7] [--subject servers]

| module | content |
|---|---|
| `history` | operations with their times and outcomes, the input of the checkers |
| `checkers` | pure: history and final state in, faults out |
| `tables` | the tables of the workload, and the statements that create them |
| `clients` | threads that run one workload each and record it |
| `definitions` | the client that changes tables, partitions, topics and storages |
| `messages` | the topic's producer |
| `nemesis` | blows are drawn from the seed, struck together and mended |
| `harm` | pauses, kills, links, hosts, disks, clocks: the kinds of blows |
| `services` | the broker and the bucket behind links, and the blows on them |
| `subjects`, `servers`, `database`, `single` | systems under test, and the blows that each offers |
| `final` | reads the final state of a subject |
| `run`, `report` | rounds over one started subject; their results |
"""
