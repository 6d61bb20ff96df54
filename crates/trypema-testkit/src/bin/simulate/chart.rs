//! A chart with a few curves.

use trypema_testkit::svg::{Area, Drawing, Point};

const WIDTH: u32 = 860;
const HEIGHT: u32 = 320;
const AREA: Area = Area { left: 56.0, top: 64.0, width: 560.0, height: 200.0 };

/// The styles of the curves.
const CLASSES: [&str; 4] = ["axis", "curve", "soft", "hard"];

/// The frame of a chart, without its curves.
pub(crate) struct Chart<'a> {
    pub(crate) description: &'a str,
    pub(crate) title: &'a str,
    /// The label below the horizontal axis.
    pub(crate) across: &'a str,
    pub(crate) xs: &'a [f64],
    /// The value at the upper edge, and the distance of two grid lines.
    pub(crate) top: f64,
    pub(crate) step: f64,
}

impl Chart<'_> {
    /// Draws named curves, each with a value for every element of `xs`.
    pub(crate) fn drawn(&self, curves: &[(String, Vec<f64>)]) -> String {
        let mut drawing = Drawing::new(WIDTH, HEIGHT, self.description);
        self.frame(&mut drawing);
        for (place, (name, ys)) in curves.iter().enumerate() {
            let class = CLASSES[place % CLASSES.len()];
            // Draw each segment as a line, because `Drawing::curve` supports only one style.
            for (one, other) in (1..self.xs.len().min(ys.len())).map(|to| (to - 1, to)) {
                drawing.line(self.point(one, ys[one]), self.point(other, ys[other]), class);
            }
            let y = AREA.top + 12.0 + 22.0 * place as f64;
            let left = AREA.left + AREA.width + 16.0;
            drawing.line(Point { x: left, y: y - 4.0 }, Point { x: left + 26.0, y: y - 4.0 }, class);
            drawing.text(Point { x: left + 32.0, y }, "", name);
        }
        drawing.finish()
    }

    fn frame(&self, drawing: &mut Drawing) {
        drawing.text(Point { x: AREA.left, y: 28.0 }, "heading", self.title);
        let mut level = 0.0;
        while level <= self.top {
            let y = self.y(level);
            let class = if level == 0.0 { "axis" } else { "grid" };
            drawing.line(Point { x: AREA.left, y }, Point { x: AREA.left + AREA.width, y }, class);
            drawing.text(Point { x: AREA.left - 6.0, y: y + 4.0 }, "end", &format!("{level}"));
            level += self.step;
        }
        for (place, x) in self.xs.iter().enumerate() {
            let at = Point { x: self.point(place, 0.0).x, y: AREA.top + AREA.height + 16.0 };
            if self.xs.len() <= 12 || place % 4 == 0 {
                drawing.text(at, "middle", &format!("{x}"));
            }
        }
        let below = Point { x: AREA.left + AREA.width / 2.0, y: AREA.top + AREA.height + 36.0 };
        drawing.text(below, "middle", self.across);
    }

    /// Returns the point of a value. Values are evenly spaced, whatever their distance.
    fn point(&self, place: usize, level: f64) -> Point {
        let steps = (self.xs.len().max(2) - 1) as f64;
        Point { x: AREA.left + AREA.width * place as f64 / steps, y: self.y(level) }
    }

    fn y(&self, level: f64) -> f64 {
        AREA.top + AREA.height * (1.0 - (level / self.top).min(1.0))
    }
}
