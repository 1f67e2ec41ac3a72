// SPDX-License-Identifier: GPL-2.0-only

//! Tables of text: aligned for a terminal, comma-separated for other programs.

/// An aligned table under a title. The first column is aligned left, the others right.
///
/// ```
/// use pandemonium_statistics::table;
///
/// let rows = [vec!["p99, us".to_owned(), "121".to_owned()]];
/// let text = table::text("wake", &["", "median"], &rows);
/// assert_eq!(text, "wake\n         median\np99, us     121\n");
/// ```
pub fn text(title: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([columns[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        padded.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = format!("{title}\n");
    text += &line(columns.to_vec());
    for row in rows {
        text += &line(row.iter().map(String::as_str).collect());
    }
    text
}

/// Comma-separated values with a header line.
pub fn csv(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_record(columns);
    for row in rows {
        let _ = writer.write_record(&row);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}
