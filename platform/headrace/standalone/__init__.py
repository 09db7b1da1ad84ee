"""The single-box default: embedded servers, supervisor, model fetch, demo data and the demo."""
