"""What would a step take without one of its problems?"""
