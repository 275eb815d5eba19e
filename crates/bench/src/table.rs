//! Tables of measurements.

use std::fmt::Write;

/// The rounds of one contender at one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) median: f64,
    low: f64,
    high: f64,
}

impl Measured {
    /// Summarises rounds; `None` if there were none.
    pub(crate) fn of(mut rounds: Vec<f64>) -> Option<Self> {
        rounds.sort_by(f64::total_cmp);
        let middle = |below: usize| rounds.get(below / 2).copied();
        Some(Self {
            median: f64::midpoint(middle(rounds.len().saturating_sub(1))?, middle(rounds.len())?),
            low: *rounds.first()?,
            high: *rounds.last()?,
        })
    }
}

/// Whether lower or higher is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

/// One contender in a table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Contenders are compared with this project's row of the same class.
    pub(crate) class: &'static str,
    pub(crate) is_ours: bool,
    pub(crate) cells: Vec<Option<Measured>>,
}

/// The measurements of one piece of work.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// Returns the ratio of a row to this project, in a column.
    fn ratio(&self, row: &Row, column: usize) -> Option<f64> {
        if row.is_ours {
            return None;
        }
        let ours = self
            .rows
            .iter()
            .find(|other| other.is_ours && other.class == row.class)?;
        let (ours, theirs) = (ours.cells[column]?.median, row.cells[column]?.median);
        Some(match self.better {
            Better::Less => theirs / ours,
            Better::More => ours / theirs,
        })
    }

    /// Returns the table as Markdown, with the ratio to this project after each value.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("| {} |", self.unit);
        let mut line = String::from("|---|");
        for column in &self.columns {
            // Writing to a string cannot fail.
            let _ = write!(text, " {column} |");
            line.push_str("---|");
        }
        let _ = write!(text, "\n{line}\n");
        for row in &self.rows {
            let name = if row.is_ours {
                format!("**{}**", row.name)
            } else {
                row.name.clone()
            };
            let _ = write!(text, "| {name} |");
            for (column, cell) in row.cells.iter().enumerate() {
                let _ = match (cell, self.ratio(row, column)) {
                    (None, _) => write!(text, " – |"),
                    (Some(cell), None) => write!(text, " {} |", spread(cell)),
                    (Some(cell), Some(ratio)) => write!(text, " {}, {}× |", spread(cell), short(ratio)),
                };
            }
            text.push('\n');
        }
        text
    }
}

/// Returns a value with the spread of its rounds.
fn spread(cell: &Measured) -> String {
    let (low, high) = (short(cell.low), short(cell.high));
    if low == high {
        return short(cell.median);
    }
    format!("{} ({low}–{high})", short(cell.median))
}

/// Returns a number with its significant digits.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e6 => format!("{:.1} M", value / 1e6),
        large if large >= 10_000.0 => format!("{:.0} k", value / 1e3),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(better: Better) -> Table {
        let row = |name: &str, is_ours, rounds: [f64; 3]| Row {
            name: name.into(),
            class: "memory",
            is_ours,
            cells: vec![Measured::of(rounds.to_vec()), None],
        };
        Table {
            name: "conversation",
            title: "A turn",
            unit: "µs",
            better,
            columns: vec!["10".into(), "400".into()],
            rows: vec![
                row("ours", true, [2.0, 1.0, 3.0]),
                row("theirs", false, [40.0; 3]),
            ],
        }
    }

    #[test]
    fn a_row_shows_its_median_its_spread_and_how_far_it_is_behind() {
        let text = table(Better::Less).to_markdown();

        assert!(text.contains("| **ours** | 2.00 (1.00–3.00) | – |"), "{text}");
        assert!(text.contains("| theirs | 40.0, 20.0× | – |"), "{text}");
    }

    #[test]
    fn where_more_is_better_the_ratio_is_the_other_way_round() {
        let text = table(Better::More).to_markdown();

        assert!(text.contains("40.0, 0.05×"), "{text}");
    }

    #[test]
    fn nothing_measured_is_no_value() {
        assert!(Measured::of(Vec::new()).is_none());
    }
}
