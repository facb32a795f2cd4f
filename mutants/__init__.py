"""`make mutants`: plant one mistake at a time in a copy of the tree, and see which test fails.

The edits in `edits/` are written by hand, each with the story of a mistake. `formal.mutants` is another program: its mutants
are of the model alone, and the checks of the model look for them, not the tests.
"""
