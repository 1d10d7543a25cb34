//! Laying out text in columns of a terminal: display width, cutting, padding, tables, bars.
//!
//! Texts passed to these functions must already be safe to print. They may contain colour codes,
//! which have no width.

use console::{Alignment, measure_text_width, pad_str, truncate_str};

use crate::layout::paint::Paint;

/// The columns that `text` takes; colour codes take none.
pub fn width(text: &str) -> usize {
    measure_text_width(text)
}

/// `text` cut to `columns`, with `…` at the cut.
pub fn fit(text: &str, columns: usize) -> String {
    let mark = if columns > 0 { "…" } else { "" };
    truncate_str(text, columns, mark).into_owned()
}

/// Coloured `line` broken at spaces so that no part is wider than `columns`. Every part after the
/// first begins with `indent` spaces. A word wider than `columns` stays whole.
pub fn wrap(line: &str, columns: usize, indent: usize) -> Vec<String> {
    if width(line) <= columns || columns < 2 * indent {
        return vec![line.to_owned()];
    }
    let mut parts: Vec<String> = Vec::new();
    let mut part = String::new();
    let mut taken = 0;
    let mut is_begun = false;
    for word in line.split(' ') {
        let wide = width(word);
        if is_begun && taken + 1 + wide > columns && taken > indent {
            parts.push(part.trim_end().to_owned());
            part = " ".repeat(indent);
            taken = indent;
        } else if is_begun {
            part.push(' ');
            taken += 1;
        }
        part.push_str(word);
        taken += wide;
        is_begun = true;
    }
    parts.push(part);
    parts
}

/// `text` filled with spaces on the right.
pub fn pad(text: &str, columns: usize) -> String {
    pad_str(text, columns, Alignment::Left, None).into_owned()
}

/// `text` filled with spaces on the left.
pub fn pad_left(text: &str, columns: usize) -> String {
    pad_str(text, columns, Alignment::Right, None).into_owned()
}

/// A bar of `columns` filled to `share` of its length.
pub fn bar(share: f64, columns: usize, paint: Paint) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share from 0 to 1 of a terminal's columns"
    )]
    let halves = (share * 2.0 * columns as f64).round() as usize;
    let full = halves / 2;
    let tip = if halves % 2 == 1 { "╸" } else { "" };
    let rest = columns - full - halves % 2;
    format!("{}{}", paint.good(&format!("{}{tip}", "━".repeat(full))), paint.dim(&"─".repeat(rest)))
}

/// The side to which a column's cells are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table with a heading, a line under the heading, and two spaces between columns.
#[derive(Debug, Clone)]
pub struct Table {
    headings: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

/// Columns between two columns of a table.
const GUTTER: usize = 2;
/// A column that is narrowed keeps at least this width.
const MIN_COLUMN: usize = 8;

impl Table {
    /// An empty table.
    pub fn new(headings: Vec<(&'static str, Align)>) -> Self {
        Self { headings, rows: Vec::new() }
    }

    /// Adds a row of as many plain cells as there are headings.
    pub fn push(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    /// The same table without the columns that are empty in every row.
    #[must_use]
    pub fn without_empty_columns(self) -> Self {
        let is_kept = |column: usize| self.rows.iter().any(|row| !row[column].is_empty());
        let kept: Vec<usize> = (0..self.headings.len()).filter(|column| is_kept(*column)).collect();
        let cells = |row: &Vec<String>| kept.iter().map(|column| row[*column].clone()).collect();
        Self {
            headings: kept.iter().map(|column| self.headings[*column]).collect(),
            rows: self.rows.iter().map(cells).collect(),
        }
    }

    /// The table's lines. If the table is wider than `max_width`, its widest text columns are
    /// narrowed. `style` colours a padded cell, given its row and column.
    pub fn lines(
        &self,
        max_width: usize,
        paint: Paint,
        style: impl Fn(usize, usize, &str) -> String,
    ) -> Vec<String> {
        let widths = self.widths(max_width);
        let join = |cells: Vec<String>| cells.join(&" ".repeat(GUTTER)).trim_end().to_owned();
        let lay_out = |text: &str, column: usize| {
            let text = fit(text, widths[column]);
            match self.headings[column].1 {
                Align::Left => pad(&text, widths[column]),
                Align::Right => pad_left(&text, widths[column]),
            }
        };
        let headings =
            (0..widths.len()).map(|column| paint.bold(&lay_out(self.headings[column].0, column)));
        let rule = widths.iter().sum::<usize>() + GUTTER * widths.len().saturating_sub(1);
        let mut lines = vec![join(headings.collect()), paint.dim(&"─".repeat(rule))];
        for (index, row) in self.rows.iter().enumerate() {
            let cells = row
                .iter()
                .enumerate()
                .map(|(column, cell)| style(index, column, &lay_out(cell, column)));
            lines.push(join(cells.collect()));
        }
        lines
    }

    fn widths(&self, max_width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| width(&row[column]));
                cells.max().unwrap_or(0).max(width(self.headings[column].0))
            })
            .collect();
        let gutters = GUTTER * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gutters > max_width {
            let widest = (0..widths.len())
                .filter(|column| self.headings[*column].1 == Align::Left)
                .max_by_key(|column| widths[*column]);
            match widest {
                Some(column) if widths[column] > MIN_COLUMN => widths[column] -= 1,
                _ => break,
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_counts_columns_not_characters() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdefg", 6), "abcde…");
        assert_eq!(fit("模型模型", 5), "模型…");
        assert_eq!(fit("ab", 0), "");
        assert_eq!(width(&fit(&Paint::COLOUR.bad("abcdefg"), 3)), 3);
        assert_eq!(pad("模", 4), "模  ");
        assert_eq!(pad_left("ab", 4), "  ab");
        assert_eq!(width(&Paint::COLOUR.bad("abc")), 3);
    }

    #[test]
    fn long_lines_break_at_spaces() {
        let line = "  0:07  note  one two three four five six";
        assert_eq!(wrap(line, 80, 8), [line]);
        assert_eq!(
            wrap(line, 24, 8),
            ["  0:07  note  one two", "        three four five", "        six"]
        );
        assert_eq!(wrap(line, 10, 8), [line]);
        let painted = format!("a {} c", Paint::COLOUR.bad("bb bb"));
        assert_eq!(wrap(&painted, 6, 1).len(), 2);
        assert_eq!(wrap("aaaaaaaa bb", 4, 0), ["aaaaaaaa", "bb"]);
    }

    #[test]
    fn bars_keep_their_length() {
        for share in [-1.0, 0.0, 0.01, 0.5, 0.99, 1.0, 2.0, f64::NAN] {
            assert_eq!(width(&bar(share, 10, Paint::COLOUR)), 10);
        }
        assert_eq!(bar(0.55, 10, Paint::PLAIN), "━━━━━╸────");
    }

    #[test]
    fn wide_tables_give_way_in_their_text() {
        let mut table = Table::new(vec![("task", Align::Left), ("GPUs", Align::Right)]);
        table.push(vec!["a-very-long-name-of-a-task".to_owned(), "16".to_owned()]);
        table.push(vec!["b".to_owned(), "1".to_owned()]);
        let lines = table.lines(20, Paint::PLAIN, |_, _, cell| cell.to_owned());
        assert_eq!(
            lines,
            [
                "task            GPUs",
                "────────────────────",
                "a-very-long-n…    16",
                "b                  1"
            ]
        );
        table.push(vec![String::new(), "3".to_owned()]);
        assert_eq!(table.without_empty_columns().headings.len(), 2);
        let mut table = Table::new(vec![("task", Align::Left), ("GPUs", Align::Right)]);
        table.push(vec!["a".to_owned(), String::new()]);
        let lines =
            table.without_empty_columns().lines(20, Paint::PLAIN, |_, _, cell| cell.to_owned());
        assert_eq!(lines, ["task", "────", "a"]);
    }
}
