"""The `headrace` command: bulk summarisation from anywhere, over HTTP, with nothing but a key.

It must never import Django, torch or any other package of ours: it runs on a laptop far from the
house. `main` is its entry point; `manage.py summarize` calls the same code.
"""
