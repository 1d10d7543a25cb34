//! The frame of live pages, the page to log in, and pages that say what went wrong.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::html::colours;
use crate::html::frame::{STYLE, logo, visible};
use crate::layout::units::duration;

const LIVE_STYLE: &str = include_str!("live.css");
/// The script of live pages: that of all pages, with its live parts around it.
pub(super) const LIVE_SCRIPT: &str = concat!(
    include_str!("script/draw.js"),
    include_str!("script/keep.js"),
    include_str!("script/gantt.js"),
    include_str!("script/curves.js"),
    include_str!("script/parallel.js"),
    include_str!("script/keys.js"),
    include_str!("script/charts.js"),
    include_str!("script/page.js"),
    include_str!("script/live.js"),
);
/// The script of the page to log in.
pub(super) const LOGIN_SCRIPT: &str = include_str!("script/login.js");

/// The content security policy of live pages, as a header. It allows two scripts, named by their
/// digests; a test checks these.
pub const LIVE_POLICY: &str = "default-src 'self'; style-src 'unsafe-inline'; img-src 'self' data:; \
     object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
     script-src 'sha256-lBvyFP1J5xfKOexxAJ6jjZsFtrv0CZpVrAhIKgKDw/c=' \
     'sha256-tpmRJo4wAmx2S28KXELO4SG5XAPU1yl3Lx+aBYNPaIY='";

/// A step of the way from the list of runs to a page: its words and address.
pub(super) type Crumb<'a> = (&'a str, String);

/// The parts of a live page.
pub(super) struct LivePage<'a> {
    pub(super) title: &'a str,
    /// The way here from the list of runs; the last is this page.
    pub(super) crumbs: &'a [Crumb<'a>],
    /// The name of the run that the page follows, and its newest event on the page.
    pub(super) run: Option<(&'a str, u64)>,
    pub(super) body: Markup,
}

impl LivePage<'_> {
    pub(super) fn render(&self) -> String {
        let run = self.run.map(|(name, _)| segment(name));
        let event = self.run.map(|(_, event)| event);
        let last = self.crumbs.len();
        let end = html! {
            p #live role="status" { "read once: no script runs here" }
            button #leave type="button" { "Log out" }
        };
        let nav = html! {
            nav aria-label="Way" {
                a href="/" aria-current=[(last == 0).then_some("page")] { "Runs" }
                @for (index, (words, address)) in self.crumbs.iter().enumerate() {
                    span aria-hidden="true" { "/" }
                    a href=(address) aria-current=[(index + 1 == last).then_some("page")] { (words) }
                }
            }
        };
        let main = html! {
            main #main tabindex="-1" data-run=[run] data-event=[event] { (self.body) }
        };
        page(self.title, &nav, &end, &main, LIVE_SCRIPT)
    }
}

fn page(title: &str, nav: &Markup, end: &Markup, main: &Markup, script: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Saturn" }
                link rel="icon" href="data:,";
                style {
                    (PreEscaped(STYLE)) (PreEscaped(LIVE_STYLE)) (PreEscaped(colours::css(colours::NUM_LOOKS)))
                }
            }
            body {
                a.skip href="#main" { "To the content" }
                header.top {
                    div {
                        a.brand href="/" aria-label="Saturn: all runs" { (logo()) }
                        (nav)
                        div.end { (end) }
                    }
                }
                (main)
                footer { "Saturn " (env!("CARGO_PKG_VERSION")) }
                div #tip hidden {}
                @if !script.is_empty() { script { (PreEscaped(script)) } }
            }
        }
    };
    visible(&page.into_string())
}

/// The page to log in. `is_wrong`: a token was shown that is not right.
pub fn login_page(is_wrong: bool) -> String {
    let main = html! {
        main #main tabindex="-1" {
            div.heading { h1 { "Log in" } }
            section {
                p { "Open the address that " code { "saturn web" } " printed: it has the token. Or enter the token here." }
                form method="post" action="/login" {
                    label for="token" { "Token" }
                    input #token name="token" type="password" autocomplete="off" required;
                    " " button type="submit" { "Log in" }
                }
                p #said.bad role="status" {
                    @if is_wrong { "This is not the token of the server that runs now." }
                }
            }
        }
    };
    let nothing = Markup::default();
    page("Log in", &nothing, &nothing, &main, LOGIN_SCRIPT)
}

/// A page that says what went wrong, and a way on.
pub fn failure_page(title: &str, words: &str) -> String {
    let main = html! {
        main #main tabindex="-1" {
            div.heading { h1 { (title) } }
            section { p { (words) } p { a href="/" { "All runs" } } }
        }
    };
    let nothing = Markup::default();
    page(title, &nothing, &nothing, &main, "")
}

/// A name as a part of an address.
pub(super) fn segment(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~+=".contains(&byte) && name != "." && name != ".."
        {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The address of a run's page.
pub(super) fn run_address(run: &str) -> String {
    format!("/runs/{}", segment(run))
}

/// The address of a task's page.
pub(super) fn task_address(run: &str, task: &str) -> String {
    format!("/runs/{}/tasks/{}", segment(run), segment(task))
}

/// A time that is to come: from now on, which the script turns into a time of day.
pub(super) fn to_come(at_s: f64, now_s: f64) -> Markup {
    let left_s = (at_s - now_s).max(0.0);
    html! { time data-in=(format!("{left_s:.0}")) { "in " (duration(left_s)) } }
}

/// A part of a page that the script keeps up to date. A part that is empty is there too, since it may
/// fill, and is not shown (`live.css`).
pub(super) fn live_section(id: &str, title: &str, body: &Markup) -> Markup {
    html! {
        section.live aria-labelledby=(format!("{id}-title")) {
            h2 id=(format!("{id}-title")) data-live { (title) }
            div id=(id) data-live { (body) }
        }
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::html::frame::tests::base64;

    #[test]
    fn the_policy_names_the_scripts() {
        for (name, script) in [("LIVE", LIVE_SCRIPT), ("LOGIN", LOGIN_SCRIPT)] {
            let digest = base64(&Sha256::digest(script));
            assert!(LIVE_POLICY.contains(&format!("'sha256-{digest}'")), "{name} {digest}");
            assert!(!script.contains('\r') && !script.contains("</script"));
        }
    }

    #[test]
    fn a_name_is_one_part_of_an_address() {
        assert_eq!(segment("lr1e-3_b"), "lr1e-3_b");
        assert_eq!(segment("../a b/ü?#%"), "..%2Fa%20b%2F%C3%BC%3F%23%25");
        assert_eq!(segment(".."), "%2E%2E");
    }
}
