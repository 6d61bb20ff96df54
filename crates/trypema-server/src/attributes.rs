//! Bounds on the attributes of a request, for every front end.

/// The maximum number of attributes of one request. The engine accepts no more.
pub(crate) const MAX_ATTRIBUTES: usize = 32;
/// The maximum length of an attribute's name, in bytes.
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 64;
/// The maximum length of an attribute's value, in bytes: longer than any usual path.
pub(crate) const MAX_ATTRIBUTE_VALUE: usize = 8 * 1024;
