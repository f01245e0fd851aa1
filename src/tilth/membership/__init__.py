"""Several servers over one catalog: who lives, who hosts which table.

Covers: heartbeats, placement of tables on servers (member.py); calls between servers (peers.py, http_peers.py).
Does not cover: records of servers and leases (tilth.catalog), what a host does with its tables (ingest, maintenance),
the rehearsal of a failover (statements/operate/drill.py).
Always holds: what is written does not grow with tables or parts; only the catalog says who lives.
See also: docs/operate/servers.md.
"""

from tilth.membership.member import Bounds, Liveness, Member, Membership
from tilth.membership.settings import SETTINGS, MembershipSettings
