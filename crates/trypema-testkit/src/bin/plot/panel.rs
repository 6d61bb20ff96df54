//! A small chart, several of which make up a picture.

use trypema_testkit::simulator::Tally;

use trypema_testkit::svg::{Area, Drawing, Point, thousands};

/// The ranges of the axes, and the distances of their ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) seconds: u64,
    pub(crate) seconds_per_tick: u64,
    pub(crate) top: u64,
    pub(crate) per_tick: u64,
}

/// A chart over time in a part of a drawing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panel {
    pub(crate) area: Area,
    pub(crate) scale: Scale,
}

impl Panel {
    /// Draws the axes, their ticks, and the title above.
    pub(crate) fn frame(&self, drawing: &mut Drawing, title: &str) {
        let Area { left, top, width, height } = self.area;
        let (right, bottom) = (left + width, top + height);
        drawing.text(Point { x: left, y: top - 9.0 }, "title", title);
        for level in (0..=self.scale.top).step_by(self.scale.per_tick as usize) {
            let y = self.y(level as f64);
            let class = if level == 0 { "axis" } else { "grid" };
            drawing.line(Point { x: left, y }, Point { x: right, y }, class);
            let label = Point { x: left - 6.0, y: y + 4.0 };
            drawing.text(label, "end", &thousands(level));
        }
        for second in (0..=self.scale.seconds).step_by(self.scale.seconds_per_tick as usize) {
            let x = self.x(second as f64);
            let tick = Point { x, y: bottom + 4.0 };
            drawing.line(Point { x, y: bottom }, tick, "axis");
            let label = Point { x, y: bottom + 16.0 };
            drawing.text(label, "middle", &second.to_string());
        }
    }

    /// Draws a horizontal line at `level`.
    pub(crate) fn level(&self, drawing: &mut Drawing, level: f64, class: &str) {
        let y = self.y(level);
        let left = Point { x: self.area.left, y };
        let right = Point { x: self.area.left + self.area.width, y };
        drawing.line(left, right, class);
    }

    /// Draws a bar of admitted calls for each second. A bar that exceeds the chart is labelled with its
    /// number.
    pub(crate) fn admitted(&self, drawing: &mut Drawing, seconds: &[Tally]) {
        for (second, tally) in seconds.iter().enumerate() {
            self.bar(drawing, second, 0, tally.admitted, "admitted");
        }
        self.clip_mark(drawing, seconds);
    }

    /// Draws bars of admitted calls, and of denied calls on top of them.
    pub(crate) fn admitted_and_denied(&self, drawing: &mut Drawing, seconds: &[Tally]) {
        for (second, tally) in seconds.iter().enumerate() {
            self.bar(drawing, second, tally.admitted, tally.offered, "denied");
            self.bar(drawing, second, 0, tally.admitted, "admitted");
        }
        self.clip_mark(drawing, seconds);
    }

    /// Draws a curve through `values`, evenly spaced over the whole width.
    pub(crate) fn curve(&self, drawing: &mut Drawing, values: &[u64]) {
        let step = self.scale.seconds as f64 / (values.len().max(2) - 1) as f64;
        let points = values
            .iter()
            .enumerate()
            .map(|(index, value)| Point { x: self.x(index as f64 * step), y: self.y(*value as f64) });
        drawing.curve(points, "curve");
    }

    fn bar(&self, drawing: &mut Drawing, second: usize, from: u64, to: u64, class: &str) {
        let (low, high) = (self.y(from as f64), self.y(to as f64));
        if high < low {
            let left = self.x(second as f64);
            let area =
                Area { left, top: high, width: self.x(second as f64 + 1.0) - left - 0.6, height: low - high };
            drawing.rectangle(area, class);
        }
    }

    /// Labels the number admitted in the first second if its bar exceeds the chart.
    fn clip_mark(&self, drawing: &mut Drawing, seconds: &[Tally]) {
        let is_cut = |tally: &&Tally| tally.admitted > self.scale.top;
        let cut = seconds.iter().take_while(is_cut).count();
        let Some(first) = seconds.first().filter(is_cut) else { return };
        let at = Point { x: self.x(cut as f64) + 4.0, y: self.area.top + 10.0 };
        let words = format!("↑ {} in the first second", thousands(first.admitted));
        drawing.text(at, "", &words);
    }

    fn x(&self, second: f64) -> f64 {
        self.area.left + self.area.width * second / self.scale.seconds as f64
    }

    fn y(&self, level: f64) -> f64 {
        let share = (level / self.scale.top as f64).min(1.0);
        self.area.top + self.area.height * (1.0 - share)
    }
}
