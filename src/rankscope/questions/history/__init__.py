"""How do the runs of a project differ over time?"""
