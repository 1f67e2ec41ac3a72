// SPDX-License-Identifier: GPL-2.0-only

//! Tables of typed cells, printed as text, CSV or JSON.

use clap::ValueEnum;
use pandemonium_engine::time::Span;
use pandemonium_statistics::table;

/// How tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// Comma-separated values
    Csv,
    /// JSON
    Json,
}

/// A cell: text, or a number that stays a number in CSV and JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Count(u64),
    /// A duration in microseconds, with one decimal below 100.
    Micros(Span),
    /// A number in thousandths.
    Milli(u64),
    /// No value.
    None,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Cell {
        Cell::Count(count)
    }
}

impl From<Span> for Cell {
    fn from(span: Span) -> Cell {
        Cell::Micros(span)
    }
}

impl Cell {
    /// The cell in a text table.
    pub fn show(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Micros(span) if span.as_nanos() < 100_000 => {
                format!("{}.{}", span.as_micros(), span.as_nanos() % 1_000 / 100)
            }
            Cell::Micros(span) => span.as_micros().to_string(),
            Cell::Milli(milli) => format!("{}.{:03}", milli / 1_000, milli % 1_000),
            Cell::None => "-".to_owned(),
        }
    }

    /// The cell in JSON.
    fn json(&self) -> serde_json::Value {
        match self {
            Cell::Text(text) => text.as_str().into(),
            Cell::Count(count) => (*count).into(),
            Cell::Micros(span) => (span.as_nanos() as f64 / 1_000.0).into(),
            Cell::Milli(milli) => (*milli as f64 / 1_000.0).into(),
            Cell::None => serde_json::Value::Null,
        }
    }

    /// The cell in CSV.
    fn csv(&self) -> String {
        match self {
            Cell::Micros(span) => {
                format!("{}.{:03}", span.as_micros(), span.as_nanos() % 1_000)
            }
            Cell::None => String::new(),
            other => other.show(),
        }
    }
}

/// A table with a title and named columns.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub title: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: &[&'static str]) -> Table {
        Table { title: title.into(), columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, with one cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// All cells, converted by `show`.
    pub fn cells(&self, show: fn(&Cell) -> String) -> Vec<Vec<String>> {
        self.rows.iter().map(|row| row.iter().map(show).collect()).collect()
    }

    /// The table as aligned text.
    pub fn text(&self) -> String {
        table::text(&self.title, &self.columns, &self.cells(Cell::show))
    }

    fn csv(&self) -> String {
        table::csv(&self.columns, self.cells(Cell::csv))
    }

    fn json(&self) -> serde_json::Value {
        let rows = self.rows.iter().map(|row| {
            let named = self.columns.iter().zip(row);
            named.map(|(name, cell)| ((*name).to_owned(), cell.json())).collect()
        });
        let rows: Vec<serde_json::Map<String, serde_json::Value>> = rows.collect();
        serde_json::json!({ "title": self.title, "rows": rows })
    }
}

/// Prints tables in this format.
pub fn print(tables: &[Table], format: Format) {
    match format {
        Format::Text => {
            for (number, table) in tables.iter().enumerate() {
                let gap = if number > 0 { "\n" } else { "" };
                pandemonium_print::print(&format!("{gap}{}", table.text().trim_end()));
            }
        }
        Format::Csv => {
            for (number, table) in tables.iter().enumerate() {
                let gap = if number > 0 { "\n" } else { "" };
                pandemonium_print::print(&format!("{gap}{}", table.csv().trim_end()));
            }
        }
        Format::Json => {
            let all: Vec<serde_json::Value> = tables.iter().map(Table::json).collect();
            pandemonium_print::print(&serde_json::Value::from(all).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("T", &["task", "p99 us", "n"]);
        table.row(vec!["a, b".into(), Span::from_nanos(12_345).into(), 7.into()]);
        table.row(vec!["c".into(), Span::from_micros(4_000).into(), Cell::None]);
        table
    }

    #[test]
    fn text_columns_are_aligned() {
        assert_eq!(table().text(), "T\ntask  p99 us  n\na, b    12.3  7\nc       4000  -\n");
    }

    #[test]
    fn csv_is_quoted_and_json_has_numbers() {
        assert_eq!(table().csv(), "task,p99 us,n\n\"a, b\",12.345,7\nc,4000.000,\n");
        assert_eq!(table().json()["rows"][0]["p99 us"], 12.345);
        assert!(table().json()["rows"][1]["n"].is_null());
    }
}
