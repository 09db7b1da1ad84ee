"""The kinds of input a summarisation job reads, one file each, behind `opening.read_documents`."""
