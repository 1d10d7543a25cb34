//! Where text goes: how wide it may be, and whether it may be coloured or drawn over.

use std::io::IsTerminal;

use saturn_view::Paint;

/// Width of text that goes to a pipe, and of a terminal that doesn't tell its own.
const PLAIN_WIDTH: usize = 100;
const PLAIN_HEIGHT: usize = 24;

/// Standard output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// It is a terminal that can be drawn over.
    pub(crate) is_live: bool,
    pub(crate) paint: Paint,
}

impl Screen {
    /// Standard output as the environment describes it.
    pub(crate) fn stdout() -> Self {
        let env = |name: &str| std::env::var(name).ok();
        let is_terminal = std::io::stdout().is_terminal();
        Self {
            is_live: is_terminal && env("TERM").is_none_or(|term| term != "dumb"),
            paint: Paint::from_env(is_terminal, env),
        }
    }

    /// Columns and rows at present.
    #[expect(clippy::unused_self, reason = "whoever asks for the size of the screen has one")]
    pub(crate) fn size(self) -> (usize, usize) {
        let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let (columns, rows) = terminal_size::terminal_size()
            .map_or((PLAIN_WIDTH, PLAIN_HEIGHT), |(columns, rows)| {
                (usize::from(columns.0), usize::from(rows.0))
            });
        (told.filter(|columns| *columns > 0).unwrap_or(columns), rows)
    }
}
