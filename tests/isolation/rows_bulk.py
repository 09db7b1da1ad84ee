"""Rows of files, batches and summarisation jobs: all by project key."""

from tests.isolation.matrix import Row

FILE_ROWS: dict[str, Row] = {}

BATCH_ROWS: dict[str, Row] = {}

SUMMARY_ROWS: dict[str, Row] = {}
