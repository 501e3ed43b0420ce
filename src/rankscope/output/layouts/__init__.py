"""Layouts of other tools, column by column, so that eyes and scripts used to them need not change."""
