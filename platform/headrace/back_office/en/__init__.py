"""The back office's locale: what FORMAT_MODULE_PATH leads to."""
