//! An explanation as text for a terminal.

use saturn_core::names::escape_terminal;

use crate::explain::candidates::Candidate;
use crate::explain::code::Code;
use crate::explain::explanation::Explanation;
use crate::layout::paint::{Paint, safe_lines};
use crate::layout::text::{Align, Table, pad, wrap};
use crate::layout::units::{clock, duration};
use crate::phrases::words;

/// How to read the comparison of a task's strategies.
const LEGEND: &str =
    "+ and − compare with the task's strategy; devices' time is seconds × devices.";
/// The most facts of one kind that the text shows.
const MAX_SHOWN: usize = 12;
impl Explanation {
    /// The explanation as text of at most `width` columns. The last line has no line end.
    pub fn text(&self, width: usize, paint: Paint) -> String {
        let mut lines = Vec::new();
        for (index, reason) in self.reasons.iter().enumerate() {
            let sentence = escape_terminal(&reason.sentence);
            let sentence = if index == 0 { paint.bold(&sentence) } else { sentence };
            lines.extend(wrap(&sentence, width, 0));
        }
        if let Some(end_s) = self.expected_end_s {
            let start = self.expected_start_s.map(|start_s| {
                format!("start at {} (in {}), ", clock(start_s), duration(start_s - self.now_s))
            });
            let band = self
                .expected_end_band_s
                .map(|(early_s, late_s)| format!(" ({}-{})", clock(early_s), clock(late_s)));
            lines.push(format!(
                "expected: {}end at {}{}",
                start.unwrap_or_default(),
                clock(end_s),
                band.unwrap_or_default()
            ));
        }
        let traceback = self.traceback.as_deref().unwrap_or_default();
        lines.extend(safe_lines(traceback).map(|line| paint.dim(&format!("│ {line}"))));
        let log = self.log.as_deref().map(escape_terminal);
        lines.extend(log.map(|log| paint.dim(&format!("log: {log}"))));
        lines.extend(self.due_words());
        if !self.candidates.is_empty() {
            lines.extend([String::new(), paint.bold("strategies")]);
            lines.extend(self.candidate_lines(width, paint));
            let is_compared = |one: &Candidate| one.slower_s.is_some() && one.code != Code::Chosen;
            if self.candidates.iter().any(is_compared) {
                lines.extend(wrap(LEGEND, width, 0).iter().map(|line| paint.dim(line)));
            }
        }
        if !self.moves.is_empty() {
            lines.extend([String::new(), paint.bold("moves")]);
            let skipped = self.moves.len().saturating_sub(MAX_SHOWN);
            if skipped > 0 {
                lines.push(paint.dim(&format!("and {skipped} earlier moves")));
            }
            for one in &self.moves[skipped..] {
                let line = format!("{}  {}", pad(&clock(one.at_s), 7), one.sentence);
                lines.extend(wrap(&escape_terminal(&line), width, 9));
            }
        }
        lines.join("\n")
    }

    /// Whether the task's deadline is expected to be kept.
    fn due_words(&self) -> Option<String> {
        let due_s = self.deadline_s?;
        let due = self.due.clone().unwrap_or_else(|| format!("{} of the run", clock(due_s)));
        Some(match self.expected_end_s {
            None => format!("due at {due}: whether it ends in time is not known yet"),
            Some(end_s) if end_s > due_s => {
                format!("due at {due}: it is expected to end {} late", duration(end_s - due_s))
            }
            Some(_) => format!("due at {due}: it is expected to end in time"),
        })
    }

    fn candidate_lines(&self, width: usize, paint: Paint) -> Vec<String> {
        let has_types =
            self.candidates.iter().any(|one| one.gpu_type != self.candidates[0].gpu_type);
        let mut columns = vec![("strategy", Align::Left)];
        columns.extend(has_types.then_some(("on", Align::Left)));
        columns.extend([("takes", Align::Right), ("why", Align::Left)]);
        let mut table = Table::new(columns);
        for one in self.candidates.iter().take(MAX_SHOWN) {
            let mut row = vec![words::technique_on(&one.technique, one.gpus)];
            row.extend(has_types.then(|| escape_terminal(&one.gpu_type)));
            row.push(one.time_s.map(duration).unwrap_or_default());
            row.push(escape_terminal(&one.sentence));
            table.push(row);
        }
        let mut lines = table.lines(width, paint, |row, column, cell| {
            if column == 0 && self.candidates[row].code == Code::Chosen {
                paint.good(cell)
            } else {
                cell.to_owned()
            }
        });
        let num_more = self.candidates.len().saturating_sub(MAX_SHOWN);
        lines.extend((num_more > 0).then(|| paint.dim(&format!("and {num_more} more"))));
        lines
    }
}
