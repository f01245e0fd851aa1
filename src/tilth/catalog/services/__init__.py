"""State that workers and servers share: switches, leases, readers' holds, the throttle of writers, the audit log."""
