"""MUTATE: parts are brought to what ALTER asked for. See also: docs/policies/mutations.md."""
