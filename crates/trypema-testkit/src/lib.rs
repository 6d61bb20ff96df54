//! Tools for testing.
