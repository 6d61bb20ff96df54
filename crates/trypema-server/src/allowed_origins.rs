//! The setting `allowed_origins`: web pages that may call the server.

use http::{HeaderValue, Uri};

/// The origins of web pages that may call the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedOrigins(Vec<HeaderValue>);

impl AllowedOrigins {
    /// Validates origins as they are written in settings.
    ///
    /// # Errors
    ///
    /// The first text that is not an origin. `null` is rejected, because every sandboxed frame sends it.
    pub(crate) fn new(texts: &[String]) -> Result<Self, String> {
        let parse = |text: &String| {
            origin(text.trim()).ok_or_else(|| {
                format!("`{text}`: need scheme and host, and a port if it is not the usual one, as in https://app.example")
            })
        };
        texts.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the allowed origin that equals `given`.
    pub(crate) fn find(&self, given: &HeaderValue) -> Option<&HeaderValue> {
        self.0.iter().find(|allowed| *allowed == given)
    }
}

/// Returns an origin in the form that browsers send: scheme, host and port in lower case, without a path or
/// a default port.
fn origin(text: &str) -> Option<HeaderValue> {
    let uri: Uri = text.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let usual = matches!((scheme, authority.port_u16()), ("http", Some(80)) | ("https", Some(443)));
    let is_origin = ["http", "https"].contains(&scheme)
        && text == format!("{scheme}://{authority}")
        && !authority.as_str().contains('@')
        && !usual
        && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    if is_origin { HeaderValue::from_str(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_name_whole_origins() {
        for right in
            ["https://app.example", "http://localhost:3000", "http://[::1]:3000", "https://a.b.example:8443"]
        {
            assert!(AllowedOrigins::new(&[right.to_owned()]).is_ok(), "{right}");
        }
        for wrong in [
            "",
            "null",
            "*",
            "app.example",
            "https://",
            "https://app.example/",
            "https://app.example/path",
            "https://App.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://user@app.example",
            "https://*.example",
            "ftp://app.example",
        ] {
            // To the parser, `*` is an ordinary character of a host, so this origin is accepted and matches
            // only itself.
            let is_refused = AllowedOrigins::new(&[wrong.to_owned()]).is_err();
            assert_eq!(is_refused, wrong != "https://*.example", "{wrong}");
        }
    }
}
