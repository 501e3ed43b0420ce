"""What programs and the commands use to look at runs: joins readers, store, analyses and forms.

`rankscope.open` leads here; `import rankscope` alone loads nothing of it.
"""
