//! The page with the latest measurements.

use std::fmt::Write;
use std::path::Path;

use everturn::Result;
use everturn::prelude::Error;

use crate::chart::bars;
use crate::table::Table;
use crate::works::Measurements;

const BEGIN: &str = "<!-- ./bench writes from here -->";
const END: &str = "<!-- to here -->";

/// Marks measurements of an earlier run.
const EARLIER: &str = " (earlier)";

/// Ends the entry of a contender that is not installed, in place of its version.
pub(crate) const LEFT_OUT: &str = ": not here, left out";

/// Writes the tables between two marks of a page, and a chart for each.
///
/// An absent contender keeps the row of an earlier run, with a mark: not every machine has every peer.
///
/// # Errors
/// `INVALID_ARGUMENT` if the page has no marks; `INTERNAL` if it cannot be read or written.
pub(crate) fn write(page: &Path, measured: &Measurements) -> Result<()> {
    let text = std::fs::read_to_string(page)?;
    let marks = text
        .find(BEGIN)
        .zip(text.find(END))
        .filter(|(begin, end)| begin < end);
    let Some((begin, end)) = marks else {
        return Err(Error::invalid_argument(format!(
            "{} has no place for the tables: it needs the lines '{BEGIN}' and '{END}'",
            page.display()
        )));
    };
    let charts = page.with_extension("");
    std::fs::create_dir_all(&charts)?;
    let folder = charts
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let earlier = &text[begin..end];
    let mut tables = format!("{BEGIN}\n\nMeasured with:\n\n");
    for version in &measured.versions {
        let version = version_of(version, earlier);
        // Writing to a string cannot fail.
        let _ = writeln!(tables, "- {version}");
    }
    for table in &measured.tables {
        std::fs::write(charts.join(format!("{}.svg", table.name)), bars(table))?;
        let _ = writeln!(
            tables,
            "\n### {}\n\n{}{}\n![{}]({folder}/{}.svg)",
            table.title,
            table.to_markdown(),
            rows_of(table, earlier),
            table.title,
            table.name
        );
    }
    tables.push('\n');
    std::fs::write(page, format!("{}{tables}{}", &text[..begin], &text[end..]))?;
    Ok(())
}

/// Returns the rows of an earlier page that a table lacks, if the columns are the same.
fn rows_of(table: &Table, earlier: &str) -> String {
    let heading = format!("\n### {}\n", table.title);
    let own = table.to_markdown();
    let (head, measured) = own.split_once('\n').unwrap_or_default();
    let section = earlier
        .split_once(&heading)
        .and_then(|(_, rest)| rest.split("\n### ").next())
        .and_then(|section| section.split_once(head));
    let Some((_, section)) = section else {
        return String::new();
    };
    let name = |row: &str| {
        row.split('|')
            .nth(1)
            .map(|name| name.trim().trim_end_matches(EARLIER).to_owned())
    };
    let measured: Vec<_> = measured.lines().map(name).collect();
    let mut kept = String::new();
    for row in section.lines().filter(|row| row.starts_with("| ")) {
        let named = name(row);
        if !measured.contains(&named) {
            let cells = row.splitn(3, '|').nth(2).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(kept, "| {}{EARLIER} |{cells}", named.unwrap_or_default());
        }
    }
    kept
}

/// Returns the version that an earlier page names for an absent contender.
fn version_of(version: &str, earlier: &str) -> String {
    let known = version.strip_suffix(LEFT_OUT).and_then(|name| {
        let mut lines = earlier.lines().filter_map(|line| line.strip_prefix("- "));
        lines.find(|line| line.starts_with(name) && !line.ends_with(LEFT_OUT))
    });
    known.map_or(version.to_owned(), |known| {
        format!("{}{EARLIER}", known.trim_end_matches(EARLIER))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Better, Measured, Row, Table};

    fn measured() -> Measurements {
        let row = |name: &str, is_ours, value: f64| Row {
            name: name.into(),
            class: "memory",
            is_ours,
            cells: vec![Measured::of(vec![value]), None],
        };
        Measurements {
            versions: vec!["Everturn 0.1.0".into()],
            tables: vec![Table {
                name: "conversation",
                title: "One <conversation>",
                unit: "µs",
                better: Better::Less,
                columns: vec!["turn 10".into(), "turn 10,000".into()],
                rows: vec![row("ours", true, 2.0), row("theirs", false, 400.0)],
            }],
        }
    }

    #[test]
    fn tables_replace_those_of_the_run_before_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("performance.md");
        std::fs::write(&page, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).unwrap();

        write(&page, &measured()).unwrap();
        write(&page, &measured()).unwrap();

        let text = std::fs::read_to_string(&page).unwrap();
        assert!(
            text.starts_with("before\n") && text.ends_with("\nafter\n"),
            "{text}"
        );
        assert!(!text.contains("old"), "{text}");
        assert_eq!(text.matches("| theirs | 400, 200× | – |").count(), 1, "{text}");
        assert!(text.contains("(performance/conversation.svg)"), "{text}");
    }

    #[test]
    fn an_absent_contender_keeps_the_row_of_an_earlier_run() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("performance.md");
        std::fs::write(&page, format!("{BEGIN}\n{END}\n")).unwrap();
        let mut measured = measured();
        measured.versions.push("Peer 2".into());
        write(&page, &measured).unwrap();

        measured.versions[1] = format!("Peer{LEFT_OUT}");
        measured.tables[0].rows.pop();
        for _ in 0..2 {
            write(&page, &measured).unwrap();

            let text = std::fs::read_to_string(&page).unwrap();
            assert_eq!(text.matches("theirs").count(), 1, "{text}");
            assert!(text.contains("| theirs (earlier) | 400, 200× | – |\n"), "{text}");
            assert!(text.contains("- Peer 2 (earlier)\n"), "{text}");
        }

        measured.tables[0].columns[0] = "turn 20".into();
        write(&page, &measured).unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(!text.contains("theirs"), "{text}");
    }

    #[test]
    fn a_chart_shows_the_column_that_most_take_part_in_and_its_names_are_text() {
        let chart = bars(&measured().tables[0]);

        assert!(chart.contains("One &lt;conversation&gt;, turn 10: µs"), "{chart}");
        assert_eq!(chart.matches("<rect").count(), 2, "{chart}");
    }

    #[test]
    fn a_page_without_marks_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        std::fs::write(&page, "text").unwrap();

        assert!(write(&page, &measured()).is_err());
        assert_eq!(std::fs::read_to_string(&page).unwrap(), "text");
    }
}
