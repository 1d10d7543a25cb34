//! The stream of a run's events: server-sent events whose ids are numbers in the run's journal.
//!
//! A client that connects again says which event it saw last, and misses nothing. If that event is
//! too long ago, the client is told to read the status anew (`resync`), and the stream goes on from
//! the newest event. A client that does not read is cut off. Between events, a `progress` says that
//! the run's clock goes on, since steps of training are no events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use crate::answers::data::Events;
use crate::answers::failure::FailureKind;
use crate::http::app::App;
use crate::http::reply;

/// How often a stream looks for new events.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a stream says that the run's clock goes on, and that it lives.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
const SIGN_EVERY: Duration = Duration::from_secs(15);
/// Events that are read at once, and that wait for the client.
const MOST: usize = 256;
const WAITING: usize = 32;
/// How long a client may read nothing.
const UNREAD: Duration = Duration::from_secs(20);

/// The query of a stream.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    after: Option<String>,
}

/// The last event that a client has seen: its number, and its run's id if the client says it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Last {
    event: u64,
    run_id: Option<String>,
}

impl Last {
    /// Reads `41`, or `41.` and a run's id, as the ids of events are.
    fn read(text: &str) -> Option<Self> {
        let (event, run_id) = match text.trim().split_once('.') {
            Some((event, run_id)) => (event, Some(run_id.to_owned())),
            None => (text.trim(), None),
        };
        Some(Self { event: event.parse().ok()?, run_id })
    }

    /// As the id of an event.
    fn text(&self) -> String {
        match &self.run_id {
            Some(run_id) => format!("{}.{run_id}", self.event),
            None => self.event.to_string(),
        }
    }
}

pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Path(run): Path<String>,
    wanted: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let after = match wanted {
        Ok(Query(Wanted { after })) => after,
        Err(error) => return reply::bad_request(&error.body_text()),
    };
    let after = match after.map(|text| Last::read(&text).ok_or(text)).transpose() {
        Ok(after) => after,
        Err(text) => return reply::bad_request(&format!("`after` is `{text}`, which is no event")),
    };
    // A browser that connects again sends the address that it had first, and this header.
    let last = headers.get("last-event-id").and_then(|id| Last::read(id.to_str().ok()?));
    let name = run.clone();
    let newest = app.read(move |source| source.events(&name, 0, 0)).await;
    let newest = match newest {
        Ok(found) => Last { event: found.newest, run_id: Some(found.run_id) },
        Err(failure) => return failure.into_response(),
    };
    let Ok(stream) = Arc::clone(&app.streams).try_acquire_owned() else {
        return FailureKind::Busy.because("too many streams of events").into_response();
    };
    let (sender, events) = channel(WAITING);
    let after = last.or(after).unwrap_or(newest);
    tokio::spawn(async move {
        follow(&app, run, after, &sender).await;
        drop(stream);
    });
    Sse::new(Told(events)).into_response()
}

/// Sends events until the client has gone, or the run can't be read any more.
async fn follow(app: &App, run: String, mut after: Last, to: &Sender<Event>) {
    let began = now();
    let (mut told, mut signed) = (began, began);
    loop {
        let (name, number) = (run.clone(), after.event);
        let found = app.read(move |source| source.events(&name, number, MOST)).await;
        let found = match found {
            Ok(found) => found,
            Err(failure) if failure.kind == FailureKind::Busy => {
                sleep(LOOK_EVERY).await;
                if to.is_closed() {
                    return;
                }
                continue;
            }
            Err(_) => return,
        };
        let (events, is_behind) = shown(&found, &mut after);
        if !events.is_empty() {
            signed = now();
        }
        for event in events {
            match timeout(UNREAD, to.send(event)).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
        if is_behind {
            continue;
        }
        sleep(LOOK_EVERY).await;
        if to.is_closed() {
            return;
        }
        if found.is_driven && told.elapsed() >= PROGRESS_EVERY {
            (told, signed) = (now(), now());
            let progress = json!({"version": 1, "now_s": found.now_s}).to_string();
            let _ = to.try_send(Event::default().event("progress").data(progress));
        } else if signed.elapsed() >= SIGN_EVERY {
            signed = now();
            let _ = to.try_send(Event::default().comment("here"));
        }
    }
}

/// The events to send, and whether there are more. `after` becomes the last of them.
fn shown(found: &Events, after: &mut Last) -> (Vec<Event>, bool) {
    let is_other = after.run_id.as_ref().is_some_and(|run_id| *run_id != found.run_id);
    after.run_id = Some(found.run_id.clone());
    if found.has_gap || is_other {
        after.event = found.newest;
        let data = json!({"version": 1, "event": found.newest}).to_string();
        return (vec![Event::default().event("resync").id(after.text()).data(data)], false);
    }
    let events = found.events.iter().map(|event| {
        after.event = event.event;
        let mut data = serde_json::to_value(event).unwrap_or_default();
        data["version"] = 1.into();
        Event::default().id(after.text()).data(data.to_string())
    });
    let events: Vec<Event> = events.collect();
    (events, after.event < found.newest)
}

#[expect(clippy::disallowed_methods, reason = "a stream shows signs of life from time to time")]
fn now() -> Instant {
    Instant::now()
}

/// Events as they are sent.
struct Told(Receiver<Event>);

impl Stream for Told {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|event| event.map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(run_id: &str, newest: u64) -> Events {
        Events {
            run_id: run_id.to_owned(),
            events: Vec::new(),
            newest,
            has_gap: false,
            is_driven: true,
            now_s: 0.0,
        }
    }

    #[test]
    fn who_saw_events_of_another_run_of_this_name_is_told_to_read_anew() {
        let last = Last::read("300.one").unwrap();
        assert_eq!(last.text(), "300.one");
        let mut after = last.clone();
        assert_eq!(shown(&found("one", 300), &mut after).0.len(), 0);
        assert_eq!(shown(&found("two", 900), &mut after).0.len(), 1, "a resync");
        assert_eq!(after, Last { event: 900, run_id: Some("two".to_owned()) });
        // A program that gives the number alone goes on.
        let mut after = Last::read(" 41 ").unwrap();
        assert_eq!(shown(&found("one", 41), &mut after).0.len(), 0);
        assert_eq!(after.text(), "41.one");
        assert_eq!(Last::read("x.one"), None);
    }
}
