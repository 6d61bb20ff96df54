//! Bounds on the attributes of a request, whichever front end it comes through.

/// Attributes of one request; the engine takes no more.
pub(crate) const MAX_ATTRIBUTES: usize = 32;
/// Bytes of an attribute's name.
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 64;
/// Bytes of an attribute's value: the longest path that is common.
pub(crate) const MAX_ATTRIBUTE_VALUE: usize = 8 * 1024;
