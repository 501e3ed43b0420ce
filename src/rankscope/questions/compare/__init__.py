"""What changed between runs, and is it sure?"""
