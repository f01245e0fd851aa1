"""The formats, a module for each family: whatever `Format` a module here holds is known, and nothing lists it.

Always holds: what INSERT reads of an answer is what was there.
"""
