"""MUTATE: entries of ALTER are applied to the parts. See also: docs/policies/mutations.md."""
