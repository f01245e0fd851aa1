"""Alarms: everything that needs a person now, declared once for tables, metrics, rules of Prometheus and pages."""
