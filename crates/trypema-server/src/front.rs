//! Front ends: each makes a request for rules of what it is asked, and an answer of their verdict. None decides anything.

pub(crate) mod http;
