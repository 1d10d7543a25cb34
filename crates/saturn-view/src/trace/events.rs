//! The Chrome trace event format: slices, arrows and notes, as JSON.

use serde_json::{Value, json};

/// A row of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// Numbered from 1, as threads are, since 0 has a special meaning in some viewers.
    pub(super) process: u64,
    pub(super) thread: u64,
}

/// Events in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Events {
    events: Vec<Value>,
    /// The next id of an arrow, or of a slice without a row.
    next_id: u64,
}

impl Events {
    pub(super) fn process(&mut self, process: u64, name: &str) {
        self.events.push(
            json!({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}),
        );
        let order = json!({"sort_index": process});
        self.events
            .push(json!({"ph": "M", "name": "process_sort_index", "pid": process, "args": order}));
    }

    pub(super) fn thread(&mut self, row: Row, name: &str) {
        let Row { process, thread } = row;
        for (what, args) in [
            ("thread_name", json!({"name": name})),
            ("thread_sort_index", json!({"sort_index": thread})),
        ] {
            let event =
                json!({"ph": "M", "name": what, "pid": process, "tid": thread, "args": args});
            self.events.push(event);
        }
    }

    /// Adds a slice to a row.
    pub(super) fn slice(&mut self, row: Row, name: &str, times: (f64, f64), more: &Value) {
        let (from, to) = (microseconds(times.0), microseconds(times.1));
        self.events.push(json!({
            "ph": "X", "name": name, "cat": "saturn", "pid": row.process, "tid": row.thread,
            "ts": from, "dur": (to - from).max(0), "args": more,
        }));
    }

    /// Adds a slice that may overlap other slices of its process.
    pub(super) fn beside(&mut self, process: u64, kind: &str, name: &str, times: (f64, f64)) {
        let id = self.id();
        for (phase, at_s) in [("b", times.0), ("e", times.1.max(times.0))] {
            self.events.push(json!({
                "ph": phase, "name": name, "cat": kind, "id": id, "pid": process, "tid": 1,
                "ts": microseconds(at_s),
            }));
        }
    }

    /// Adds an arrow from the end of a slice (its row, begin and end) to the beginning of another.
    pub(super) fn arrow(&mut self, name: &str, from: (Row, f64, f64), to: (Row, f64)) {
        let id = self.id();
        let (row, begin_s, end_s) = from;
        // The point must lie within the slice, or the arrow belongs to no slice.
        let at = (microseconds(end_s) - 1).max(microseconds(begin_s));
        self.events.push(json!({
            "ph": "s", "name": name, "cat": "move", "id": id, "pid": row.process,
            "tid": row.thread, "ts": at,
        }));
        let (row, at_s) = to;
        self.events.push(json!({
            "ph": "f", "bp": "e", "name": name, "cat": "move", "id": id, "pid": row.process,
            "tid": row.thread, "ts": microseconds(at_s),
        }));
    }

    /// Adds a note on the whole run, at a time.
    pub(super) fn word(&mut self, text: &str, at_s: f64, more: &Value) {
        self.events.push(json!({
            "ph": "i", "s": "g", "name": text, "cat": "saturn", "pid": 1, "tid": 1,
            "ts": microseconds(at_s), "args": more,
        }));
    }

    /// All events as a file.
    pub(super) fn to_json(&self, run: &str) -> String {
        // Each event gets a line, since people also read such files by hand.
        let lines: Vec<String> = self.events.iter().map(Value::to_string).collect();
        let run = Value::from(run);
        format!(
            "{{\"version\": 1, \"displayTimeUnit\": \"ms\", \"otherData\": {{\"run\": {run}}}, \"traceEvents\": \
             [\n{}\n]}}\n",
            lines.join(",\n")
        )
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

#[expect(clippy::cast_possible_truncation, reason = "runs end before 290,000 years have passed")]
fn microseconds(seconds: f64) -> i64 {
    // A save may claim to have begun before the run did.
    (seconds.max(0.0) * 1e6).round() as i64
}
