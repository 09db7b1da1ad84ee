"""Invoices of our own: periods, lines, rounding, closing, paper."""
