//! A minimal SVG writer for the pictures of the docs.

use std::fmt::Write;

/// Colours of medium lightness, which are readable on light and dark pages.
const STYLE: &str = "\
text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px;fill:#6e7781}\
.title{font-size:13px;font-weight:600}\
.heading{font-size:15px;font-weight:600}\
.end{text-anchor:end}\
.middle{text-anchor:middle}\
.axis{stroke:#8c959f;stroke-width:1}\
.grid{stroke:#8c959f;stroke-opacity:.25;stroke-width:1}\
.soft{stroke:#e08600;stroke-width:2;stroke-dasharray:5 3}\
.hard{stroke:#e5534b;stroke-width:2;stroke-dasharray:2 3}\
.admitted{fill:#3b82f6}\
.denied{fill:#8c959f;fill-opacity:.35}\
.curve{fill:none;stroke:#3b82f6;stroke-width:1.5;stroke-linejoin:round}";

/// A point in pixels from the top left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The distance from the left.
    pub x: f64,
    /// The distance from the top.
    pub y: f64,
}

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// The distance from the left.
    pub left: f64,
    /// The distance from the top.
    pub top: f64,
    /// The width.
    pub width: f64,
    /// The height.
    pub height: f64,
}

/// A drawing in progress. The classes of its style are `axis`, `grid`, `soft`, `hard`, `admitted`,
/// `denied`, `curve`, `title`, `heading`, `end` and `middle`.
#[derive(Debug)]
pub struct Drawing {
    text: String,
}

impl Drawing {
    /// Creates an empty drawing. `description` is for screen readers.
    pub fn new(width: u32, height: u32, description: &str) -> Self {
        let mut text = String::new();
        put(
            &mut text,
            format_args!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
                 height=\"{height}\" role=\"img\">\n<title>{description}</title>\n<style>{STYLE}</style>\n"
            ),
        );
        Self { text }
    }

    /// Adds text that begins at a point, or is aligned as the class says.
    pub fn text(&mut self, at: Point, class: &str, words: &str) {
        let Point { x, y } = at;
        put(
            &mut self.text,
            format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>\n"),
        );
    }

    /// Adds a line.
    pub fn line(&mut self, from: Point, to: Point, class: &str) {
        put(
            &mut self.text,
            format_args!(
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" class=\"{class}\"/>\n",
                from.x, from.y, to.x, to.y
            ),
        );
    }

    /// Adds a rectangle.
    pub fn rectangle(&mut self, area: Area, class: &str) {
        put(
            &mut self.text,
            format_args!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"{class}\"/>\n",
                area.left, area.top, area.width, area.height
            ),
        );
    }

    /// Adds a line through many points.
    pub fn curve(&mut self, points: impl Iterator<Item = Point>, class: &str) {
        self.text.push_str("<polyline points=\"");
        for Point { x, y } in points {
            put(&mut self.text, format_args!("{x:.1},{y:.1} "));
        }
        put(&mut self.text, format_args!("\" class=\"{class}\"/>\n"));
    }

    /// Returns the whole file.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// Appends formatted text. Writing to a `String` cannot fail.
fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

/// Formats 12345 as "12,345".
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
