"""What those who work share: switches, leases, readers' holds, the throttle of writers, the audit log."""
