//! Charts as SVG: bars on a logarithmic scale, because contenders are orders of magnitude apart.

use std::fmt::Write;

use crate::table::{Better, Table, short};

const WIDTH: f64 = 760.0;
const NAMES: f64 = 250.0;
const BAR: f64 = 22.0;

/// Draws the last column of a table in which all rows can be compared.
pub(crate) fn bars(table: &Table) -> String {
    let filled = |column: &usize| {
        table
            .rows
            .iter()
            .filter(|row| row.cells[*column].is_some())
            .count()
    };
    // Long conversations have few rows; the chart shows the longest with most contenders.
    let column = (0..table.columns.len())
        .rev()
        .max_by_key(|column| (filled(column), *column));
    let column = column.unwrap_or_default();
    let rows: Vec<_> = table
        .rows
        .iter()
        .filter_map(|row| Some((row, row.cells[column]?.median)))
        .collect();
    let (low, high) = rows
        .iter()
        .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), (_, value)| {
            (low.min(*value), high.max(*value))
        });
    // Bars begin at a tenth of the smallest value, because a logarithm has no zero.
    let (low, high) = ((low / 10.0).ln(), high.ln());
    let height = 46.0 + BAR * f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX));
    let better = match table.better {
        Better::Less => "less is better",
        Better::More => "more is better",
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <style>text{{fill:#24292f}}.ours{{fill:#0b7a75}}.theirs{{fill:#a9b4bd}}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.ours{{fill:#3fc1b8}}.theirs{{fill:#57636c}}}}</style>\n\
         <text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"600\">{}, {}: {}, {better}, logarithmic</text>\n",
        escaped(table.title),
        escaped(&table.columns[column]),
        escaped(table.unit),
    );
    let mut y = 34.0;
    for (row, value) in rows {
        let share = if high > low {
            (value.ln() - low) / (high - low)
        } else {
            1.0
        };
        let length = (WIDTH - NAMES - 90.0) * share;
        let class = if row.is_ours { "ours" } else { "theirs" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{NAMES}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" rx=\"3\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            NAMES - 8.0,
            y + 14.0,
            escaped(&row.name.replace('`', "")),
            BAR - 5.0,
            NAMES + length + 6.0,
            y + 14.0,
            short(value),
        );
        y += BAR;
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
