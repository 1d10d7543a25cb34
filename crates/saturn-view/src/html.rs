//! Self-contained pages: a run's report, and a plan alone.
//!
//! A page needs nothing from any network, says so in its content security policy, and holds no text
//! from users or workers that is not escaped.

mod gantt;
mod losses;
mod overview;
mod page;
mod palette;
mod plan;
mod schedule;
mod tables;
mod trials;

pub use page::render_html;
pub use plan::plan_html;

/// `text` as HTML text or as the value of a quoted attribute; control characters become visible.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            other => escaped
                .push_str(&saturn_core::names::escape_terminal(other.encode_utf8(&mut [0; 4]))),
        }
    }
    escaped
}

/// The pieces one after another.
pub(crate) fn concat(pieces: impl IntoIterator<Item = String>) -> String {
    pieces.into_iter().collect::<Vec<_>>().concat()
}

/// A coordinate: a tenth of a pixel is enough, and keeps pages small.
pub(crate) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_markup() {
        assert_eq!(escape("<script>'\"&"), "&lt;script&gt;&#39;&quot;&amp;");
        assert_eq!(escape("a\u{1b}[31m\u{202e}b\nc"), "a\\u{1b}[31m\\u{202e}b\nc");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(px(10.0), "10");
        assert_eq!(px(10.04), "10");
        assert_eq!(px(10.26), "10.3");
    }
}
