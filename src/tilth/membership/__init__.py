"""Several servers over one catalog: who lives, who hosts which table.

Covers: proofs of life, placement of tables on servers. Does not cover: records of servers and leases (tilth.catalog),
what a host does with its tables (ingest, maintenance).
Always holds: what is written does not grow with tables or parts; the truth about who lives is in the catalog.
See also: docs/operate/servers.md.
"""

from tilth.membership.member import Bounds, Member, Membership, Presence
from tilth.membership.settings import SETTINGS, MembershipSettings

__all__ = ["SETTINGS", "Bounds", "Member", "Membership", "MembershipSettings", "Presence"]
