"""Programs that parse what strangers send, as child processes under limits.

They import nothing of the house beyond this folder, and are started without its environment.
"""
