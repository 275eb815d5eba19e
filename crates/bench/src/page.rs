//! The page that keeps what was measured last.

use std::fmt::Write;
use std::path::Path;

use everturn::Result;
use everturn::prelude::Error;

use crate::chart::bars;
use crate::works::Measurements;

const BEGIN: &str = "<!-- ./bench writes from here -->";
const END: &str = "<!-- to here -->";

/// Writes the tables between two marks of a page, and a chart of each beside it.
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
    let mut tables = format!("{BEGIN}\n\nMeasured with:\n\n");
    for version in &measured.versions {
        // Writing to a string cannot fail.
        let _ = writeln!(tables, "- {version}");
    }
    for table in &measured.tables {
        std::fs::write(charts.join(format!("{}.svg", table.name)), bars(table))?;
        let _ = writeln!(
            tables,
            "\n### {}\n\n{}\n![{}]({folder}/{}.svg)",
            table.title,
            table.to_markdown(),
            table.title,
            table.name
        );
    }
    tables.push('\n');
    std::fs::write(page, format!("{}{tables}{}", &text[..begin], &text[end..]))?;
    Ok(())
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
