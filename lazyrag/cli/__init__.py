"""The command ``lazyrag``: index a folder, search it, ask it questions, keep it in sync.

`main` is the entry point, `commands` has the commands, `project` the folder ``.lazyrag`` with the
store and the settings, `output` what the commands print, `terminal` how it fits a terminal.
"""
