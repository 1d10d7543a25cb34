//! The elements of charts: data for the page's script, which draws them.
//!
//! Rust decides what a chart tells, and in which words. `script/` decides where in the drawing that
//! stands, and how it looks. The element of a chart holds its data as JSON, and a sentence for
//! those who run no script. Results are in the page's tables and notes too; losses by step and the
//! times of single bars are only in the charts.

use std::io;

use maud::{Markup, PreEscaped, html};
use saturn_core::names::escape_terminal;
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// The element of a chart, which holds its data until the script draws it. `kind` names the
/// function in `script/charts.js` that draws `data`, and `label` describes the chart for those who
/// can't see it.
pub(super) fn element(kind: &str, label: &str, data: &impl Serialize) -> Markup {
    html! {
        div.scroll data-chart=(kind) data-label=(label) {
            p.note { (label) ": a chart, which the page's script draws. No script ran here." }
            (script_data(data))
        }
    }
}

/// Data for the page's script, within the element of its chart.
pub(super) fn script_data(data: &impl Serialize) -> Markup {
    let mut json = Vec::new();
    // Plain data with string keys always serialises.
    let _ = data.serialize(&mut Serializer::with_formatter(&mut json, ForPage));
    let json = String::from_utf8_lossy(&json);
    html! { script type="application/json" { (PreEscaped(json)) } }
}

/// Writes JSON without `<`, so that no name can end the script element. Control characters, and
/// characters that reorder text, are made visible, as everywhere on the page. Numbers have seven
/// digits; a drawing shows fewer.
struct ForPage;

impl Formatter for ForPage {
    fn write_f64<W: io::Write + ?Sized>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        let rounded: f64 = format!("{value:.6e}").parse().unwrap_or(value);
        write!(to, "{rounded}")
    }

    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let text = escape_terminal(text).replace('\\', "\\\\").replace('<', "\\u003c");
        to.write_all(text.as_bytes())
    }

    fn write_char_escape<W: io::Write + ?Sized>(
        &mut self,
        to: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        let text = match escape {
            CharEscape::Quote => "\\\"",
            CharEscape::ReverseSolidus => "\\\\",
            CharEscape::Solidus => "/",
            CharEscape::LineFeed => "\\n",
            CharEscape::Tab => "\\t",
            CharEscape::Backspace => "\\\\u{8}",
            CharEscape::FormFeed => "\\\\u{c}",
            CharEscape::CarriageReturn => "\\\\u{d}",
            CharEscape::AsciiControl(byte) => return write!(to, "\\\\u{{{byte:x}}}"),
        };
        to.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_its_script_or_hides_in_it() {
        let name = "</script><!--\u{1b}[31m\u{202e}\r\"\\\n\tnaïve";
        let json = script_data(&[name]).0;
        let json = json.strip_prefix("<script type=\"application/json\">").unwrap();
        let json = json.strip_suffix("</script>").unwrap();
        assert!(!json.contains(['<', '\u{1b}', '\u{202e}', '\r', '\n']), "{json}");
        let [read]: [String; 1] = serde_json::from_str(json).unwrap();
        assert_eq!(read, "</script><!--\\u{1b}[31m\\u{202e}\\u{d}\"\\\n\tnaïve");
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [12.0, 0.1 + 0.2, 1_234_567.8, -1e-9, 0.0, f64::NAN];
        let expected = "[12,0.3,1234568,-0.000000001,0,null]";
        assert!(script_data(&numbers).0.contains(expected), "{}", script_data(&numbers).0);
    }
}
