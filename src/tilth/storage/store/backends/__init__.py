"""Backends of the seam for bytes: local disk, object stores, HDFS; which one a root has, and a location's marker."""
