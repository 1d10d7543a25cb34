//! Colour on a terminal, and whether to use it.

use saturn_core::names::escape_terminal;

/// Adds colour to text, or leaves it plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    colour: bool,
}

impl Paint {
    /// Plain text.
    pub const PLAIN: Self = Self { colour: false };
    /// Coloured text.
    pub const COLOUR: Self = Self { colour: true };

    /// Decides by the environment: `NO_COLOR` overrides `FORCE_COLOR`, which overrides whether the
    /// output is a terminal.
    pub fn from_env(is_terminal: bool, env: impl Fn(&str) -> Option<String>) -> Self {
        let is_set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
        if is_set("NO_COLOR") {
            return Self::PLAIN;
        }
        if is_set("FORCE_COLOR") && env("FORCE_COLOR").as_deref() != Some("0") {
            return Self::COLOUR;
        }
        Self { colour: is_terminal && !is_dumb(env) }
    }

    /// A heading or a name.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Text that a reader can skip.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// A success.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// A failure.
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// A warning.
    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// A command to type.
    pub fn command(self, text: &str) -> String {
        self.wrap("36", text)
    }

    /// The colour of the task at `index` of its workload.
    pub fn task(self, index: usize, text: &str) -> String {
        /// Colours of the 256-colour palette that differ from each other and are legible on black
        /// and on white.
        const TASK_COLOURS: [u8; 12] = [33, 172, 35, 169, 99, 37, 167, 142, 68, 133, 71, 130];
        self.wrap(&format!("38;5;{}", TASK_COLOURS[index % TASK_COLOURS.len()]), text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Whether the terminal can only print: `TERM` is `dumb` or absent.
pub(crate) fn is_dumb(env: impl Fn(&str) -> Option<String>) -> bool {
    env("TERM").is_none_or(|term| term == "dumb" || term.is_empty())
}

/// Text from a worker, line by line, safe to print: control characters are made visible, and tabs
/// become spaces.
pub(crate) fn safe_lines(text: &str) -> impl Iterator<Item = String> {
    text.trim_end().lines().map(|line| escape_terminal(&line.replace('\t', "    ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(is_terminal: bool, vars: &[(&str, &str)]) -> bool {
        let find = |name: &str| {
            vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Paint::from_env(is_terminal, find) == Paint::COLOUR
    }

    #[test]
    fn no_color_beats_force_color_beats_the_terminal() {
        let term = ("TERM", "xterm");
        assert!(decide(true, &[term]));
        assert!(!decide(true, &[("TERM", "dumb")]));
        assert!(!decide(true, &[]));
        assert!(!decide(false, &[term]));
        assert!(decide(false, &[("FORCE_COLOR", "1")]));
        assert!(!decide(false, &[("FORCE_COLOR", "0")]));
        assert!(!decide(true, &[term, ("NO_COLOR", "1"), ("FORCE_COLOR", "1")]));
        assert!(decide(true, &[term, ("NO_COLOR", "")]));
    }

    #[test]
    fn worker_text_cannot_move_the_cursor() {
        let lines: Vec<String> = safe_lines("a\tb\r\n\u{1b}[2Jc\n\n").collect();
        assert_eq!(lines, ["a    b", "\\u{1b}[2Jc"]);
    }
}
