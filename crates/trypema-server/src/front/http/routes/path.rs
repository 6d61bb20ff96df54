//! Matches paths with those of the table.

/// The most parameters of a path.
const MAX_PARAMETERS: usize = 3;

/// Where the parameters stand in a path.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::front::http) struct Parameters {
    spans: [(usize, usize); MAX_PARAMETERS],
    count: usize,
}

impl Parameters {
    /// Returns a parameter, as it is written in the path.
    pub(in crate::front::http) fn of<'p>(&self, path: &'p str, index: usize) -> &'p str {
        let span = self.spans[..self.count].get(index);
        span.and_then(|(start, end)| path.get(*start..*end)).unwrap_or_default()
    }

    fn add(&mut self, start: usize, end: usize) {
        if let Some(free) = self.spans.get_mut(self.count) {
            *free = (start, end);
            self.count += 1;
        }
    }
}

/// Returns the parameters of a path that matches a path of the table. `{name}` is one segment, and `{name..}` one or
/// more, so that a key may have slashes that a client did not encode.
pub(super) fn matching(template: &str, path: &str) -> Option<Parameters> {
    let mut parameters = Parameters::default();
    let Some((fixed, _)) = template.split_once('{') else { return (template == path).then_some(parameters) };
    if !path.starts_with(fixed) {
        return None;
    }
    let (mut wanted, mut at) = (template[fixed.len()..].split('/').peekable(), fixed.len());
    while let Some(segment) = wanted.next() {
        let rest = path.get(at..)?;
        let end = match segment.strip_suffix("..}") {
            // As many segments as leave enough for the others.
            Some(_) => {
                let after = wanted.clone().count();
                let mut slashes = rest.rmatch_indices('/').map(|(slash, _)| slash);
                if after == 0 { rest.len() } else { slashes.nth(after - 1)? }
            }
            None => rest.find('/').unwrap_or(rest.len()),
        };
        match segment.starts_with('{') {
            true => parameters.add(at, at + end),
            false if rest[..end] == *segment => {}
            false => return None,
        }
        at += end;
        if wanted.peek().is_some() {
            path.get(at..)?.strip_prefix('/')?;
            at += 1;
        }
    }
    (at == path.len()).then_some(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters<'p>(template: &str, path: &'p str) -> Option<Vec<&'p str>> {
        let parameters = matching(template, path)?;
        Some((0..parameters.count).map(|index| parameters.of(path, index)).collect())
    }

    #[test]
    fn parameters_are_segments() {
        for (template, path, expected) in [
            ("/v1/rules", "/v1/rules", Some(vec![])),
            ("/v1/rules", "/v1/rules/", None),
            ("/v1/rules/{id}", "/v1/rules/a", Some(vec!["a"])),
            ("/v1/rules/{id}", "/v1/rules/", Some(vec![""])),
            ("/v1/rules/{id}", "/v1/rules", None),
            ("/v1/rules/{id}", "/v1/rules/a/b", None),
            ("/v1/rules/{id}/promote", "/v1/rules/a/promote", Some(vec!["a"])),
            ("/v1/rules/{id}/promote", "/v1/rules/a/promoted", None),
            ("/v1/rules/{id}/promote", "/v1/rules/a", None),
            ("/v1/keys/{key..}", "/v1/keys/a/b", Some(vec!["a/b"])),
            ("/v1/keys/{key..}", "/v1/keys/", Some(vec![""])),
            ("/v1/keys/{key..}/reservations/{id}", "/v1/keys/a/reservations/0f", Some(vec!["a", "0f"])),
            ("/v1/keys/{key..}/reservations/{id}", "/v1/keys/a/b/reservations/0f", Some(vec!["a/b", "0f"])),
            ("/v1/keys/{key..}/reservations/{id}", "/v1/keys/reservations/0f", None),
            ("/v1/keys/{key..}/reservations/{id}", "/v1/keys/a", None),
            (
                "/v1/lists/{list}/{attribute}/{value..}",
                "/v1/lists/block/ip/::/8",
                Some(vec!["block", "ip", "::/8"]),
            ),
            ("/v1/lists/{list}/{attribute}/{value..}", "/v1/lists/block/ip", None),
        ] {
            assert_eq!(parameters(template, path), expected, "{template} {path}");
        }
    }
}
