//! The frame of every page.

use std::borrow::Cow;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use saturn_core::names::escape_terminal;

use crate::facts::run_status::RunStatus;
use crate::html::colours;

pub(super) const STYLE: &str = include_str!("style.css");
/// The page's script: its parts share one scope.
pub(super) const SCRIPT: &str = concat!(
    include_str!("script/draw.js"),
    include_str!("script/gantt.js"),
    include_str!("script/curves.js"),
    include_str!("script/parallel.js"),
    include_str!("script/keys.js"),
    include_str!("script/charts.js"),
    include_str!("script/page.js"),
);
/// The content security policy. It allows one script, named by its digest; a test checks the
/// digest.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
                      script-src 'sha256-jco3YgSe9pDj9pW6t+p4EgbBEEvrBk318v2O5s5PcWg='";

/// The parts of a page.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    pub(super) subtitle: &'a str,
    /// The CSS class and text of the badge beside the title.
    pub(super) badge: Option<(&'static str, Cow<'a, str>)>,
    /// How many tasks need a CSS class for their look.
    pub(super) num_tasks: usize,
    pub(super) body: Markup,
}

impl Page<'_> {
    pub(super) fn render(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Saturn" }
                    style { (PreEscaped(STYLE)) (PreEscaped(colours::css(self.num_tasks))) }
                }
                body {
                    header {
                        (logo())
                        div {
                            h1 {
                                (self.title)
                                @if let Some((class, text)) = &self.badge {
                                    " " span.badge.(class) { (text) }
                                }
                            }
                            p.subtitle { (self.subtitle) }
                        }
                    }
                    main { (self.body) }
                    footer { "Saturn " (env!("CARGO_PKG_VERSION")) }
                    div #tip hidden {}
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        visible(&page.into_string())
    }
}

/// Makes control characters, and characters that reorder text, visible in a page. So no name can
/// look like another. No template contains such characters.
pub(super) fn visible(page: &str) -> String {
    page.split_inclusive(['\n', '\t'])
        .map(|line| {
            let (text, end) = match line.strip_suffix(['\n', '\t']) {
                Some(text) => (text, &line[text.len()..]),
                None => (line, ""),
            };
            escape_terminal(text) + end
        })
        .collect()
}

/// Saturn's logo, a planet with its ring.
pub(super) fn logo() -> Markup {
    html! {
        svg.logo viewBox="0 0 40 40" aria-hidden="true" {
            circle cx="20" cy="20" r="10" {}
            path d="M11 25.5C5 30 2.5 33 4 34.5c2.5 2.5 14-4 22-12S38.5 6.5 36 4c-1.5-1.5-5 1-9.5 5" {}
        }
    }
}

/// A number with its name and an explanation. `share` adds a bar that compares the number with its
/// neighbours: the bar's CSS class and the filled share.
pub(super) fn tile(
    name: &str,
    value: &str,
    note: &str,
    share: Option<(&'static str, f64)>,
    tip: &str,
) -> Markup {
    html! {
        div.tile title=(tip) {
            div.name { (name) }
            div.value { (value) }
            div.note { (note) }
            @if let Some((class, share)) = share {
                div.share {
                    i.(class) style=(format!("width:{:.1}%", share.clamp(0.0, 1.0) * 100.0)) {}
                }
            }
        }
    }
}

/// A section of a page with its heading; empty if `body` is empty.
pub(super) fn section(title: &str, body: &Markup) -> Markup {
    html! {
        @if !body.0.is_empty() {
            section { h2 { (title) } (body) }
        }
    }
}

/// The CSS class and text of the badge for a run's status, given how many tasks are done and failed.
pub(super) fn badge(
    status: RunStatus,
    num_done: usize,
    num_failed: usize,
) -> (&'static str, Cow<'static, str>) {
    match status {
        RunStatus::Complete if num_failed > 0 => {
            ("bad", format!("{num_done} done, {num_failed} failed").into())
        }
        RunStatus::Complete => ("good", status.word().into()),
        RunStatus::Interrupted | RunStatus::Died | RunStatus::Unfinished => {
            ("warn", status.word().into())
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// Base64 by RFC 4648.
    pub(in crate::html) fn base64(bytes: &[u8]) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let encode = |chunk: &[u8]| -> Vec<u8> {
            let mut whole = [0u8; 4];
            whole[1..=chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes(whole);
            let letter = |index: usize| {
                if index > chunk.len() {
                    b'='
                } else {
                    LETTERS[(bits >> (18 - 6 * index)) as usize & 63]
                }
            };
            (0..4).map(letter).collect()
        };
        String::from_utf8(bytes.chunks(3).flat_map(encode).collect()).unwrap()
    }

    #[test]
    fn the_policy_names_the_script() {
        assert_eq!(base64(b"light work."), "bGlnaHQgd29yay4=");
        let digest = base64(&Sha256::digest(SCRIPT));
        assert!(POLICY.contains(&format!("script-src 'sha256-{digest}'")), "{digest}");
        assert!(!SCRIPT.contains('\r'), "browsers hash a script with its line ends made one");
    }

    #[test]
    fn hidden_characters_of_a_name_are_shown() {
        let body = html! { p { "a\u{1b}[31m\u{202e}b\nc\td <i>" } };
        let page = Page { title: "t", subtitle: "", badge: None, num_tasks: 0, body }.render();
        assert!(page.contains("<p>a\\u{1b}[31m\\u{202e}b\nc\td &lt;i&gt;</p>"), "{page}");
    }
}
