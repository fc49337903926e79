"""Judging data and tools: agreement of annotators."""
