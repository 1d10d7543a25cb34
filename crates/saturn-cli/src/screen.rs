//! The properties of standard output: its width, and whether it takes colours and redrawing.
//!
//! A file or a pipe is as wide as its text: no line is cut or broken there, unless COLUMNS sets the
//! width.

use std::io::IsTerminal;

use saturn_view::Paint;

/// The size of a terminal that doesn't tell its own.
const PLAIN_SIZE: (usize, usize) = (100, 24);

/// Standard output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// It is a terminal that can be drawn over.
    pub(crate) is_live: bool,
    is_terminal: bool,
    pub(crate) paint: Paint,
}

impl Screen {
    /// Standard output as the environment describes it.
    pub(crate) fn stdout() -> Self {
        let env = |name: &str| std::env::var(name).ok();
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            is_live: is_terminal && env("TERM").is_none_or(|term| term != "dumb"),
            is_terminal,
            paint: Paint::from_env(is_terminal, env),
        }
    }

    /// Columns and rows at present.
    pub(crate) fn size(self) -> (usize, usize) {
        let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = terminal_size::terminal_size()
            .map(|(columns, rows)| (usize::from(columns.0), usize::from(rows.0)));
        size(told, self.is_terminal, terminal)
    }
}

/// The size of standard output: COLUMNS as `told`, or the terminal's own size.
fn size(
    told: Option<usize>,
    is_terminal: bool,
    terminal: Option<(usize, usize)>,
) -> (usize, usize) {
    let (columns, rows) = terminal.unwrap_or(PLAIN_SIZE);
    let columns = if is_terminal { columns } else { usize::MAX };
    (told.filter(|columns| *columns > 0).unwrap_or(columns), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_as_wide_as_its_text() {
        // The terminal may be that of another stream than standard output.
        for terminal in [Some((80, 50)), None] {
            assert_eq!(size(None, false, terminal).0, usize::MAX);
            assert_eq!(size(Some(60), false, terminal).0, 60);
        }
        assert_eq!(size(None, true, Some((80, 50))), (80, 50));
        assert_eq!(size(Some(60), true, Some((80, 50))), (60, 50));
        assert_eq!(size(Some(0), true, None), PLAIN_SIZE);
    }
}
