//! The schemas of the API's answers and bodies.
//!
//! A field is written `name: type`, where a type is `string`, `integer`, `number`, `boolean`, `any`
//! or the name of a schema; `[type]` is a list, `type?` may be null, and `name?:` may be left out.
//! A test compares real answers with these schemas, field by field.

use serde_json::{Map, Value, json};

/// A schema of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    about: &'static str,
    fields: &'static str,
}

const fn schema(name: &'static str, about: &'static str, fields: &'static str) -> Schema {
    Schema { name, about, fields }
}

/// All schemas.
pub(crate) const SCHEMAS: &[Schema] = &[
    schema("Done", "It was done.", "version: integer, ok: boolean"),
    schema(
        "Refusal",
        "Why there is no answer: a code that does not change, and words.",
        "version: integer, ok: boolean, code: string, error: string",
    ),
    schema("Login", "The token that `saturn web` printed.", "token: string"),
    schema("Runs", "All runs.", "version: integer, runs: [RunSummary]"),
    schema(
        "RunSummary",
        "A run, as `saturn runs --json` lists it.",
        "name: string, pool: boolean, state: string, pid: integer?, error: string?, \
         begun_unix_s: integer, tasks: integer, running: integer, done: integer, \
         diverged: integer, failed: integer, cancelled: integer, stopped: integer",
    ),
    schema(
        "Run",
        "Where a run stands; `event` is the number of its newest event.",
        "version: integer, run: string, event: integer, status: Status",
    ),
    schema(
        "Status",
        "The status of a run, as `saturn status --json` prints it, without its tasks.",
        "version: integer, mode: string, status: string, now_s: number, is_closed: \
         boolean, stopping: boolean?, counts: TaskCounts, trials: TrialCounts, \
         waits_space: [string]?, running_trials: [RunningTrial], pool: Pool, \
         expected_end_s: number?, expected_end_band_s: [number]?, unplanned: integer, \
         band: Band, waiting_band: Band, run_band: Band",
    ),
    schema(
        "TaskCounts",
        "Tasks by stage.",
        "all: integer, unmeasured: integer, inspecting: integer, measuring: integer, \
         waiting: integer, running: integer, paused: integer, held: integer, done: \
         integer, diverged: integer, failed: integer, cancelled: integer, stopped: \
         integer",
    ),
    schema(
        "TrialCounts",
        "Trials by outcome.",
        "measured: integer, not_applicable: integer, out_of_memory: integer, failed: \
         integer, reused: integer, ruled_out: integer, running: integer, open: integer",
    ),
    schema(
        "RunningTrial",
        "A trial that runs now.",
        "task: string, technique: string, gpus: integer, devices: [DevicesOn], \
         launched_s: number",
    ),
    schema("DevicesOn", "Devices of a node.", "node: string, devices: [integer]"),
    schema(
        "Pool",
        "The devices of a run.",
        "device_kind: string, nodes: integer, devices: integer, busy: integer, set_aside: \
         [SetAside], by_node: [Node]",
    ),
    schema(
        "SetAside",
        "A device that is set aside.",
        "node: string, device: integer, reason: string",
    ),
    schema("Node", "A node.", "name: string, gpu_type: string, devices: integer, busy: integer"),
    schema(
        "Band",
        "How large the error of an expected end may be, as factors on the remaining time.",
        "low: number, high: number, attempts: integer, earlier: integer",
    ),
    schema(
        "Tasks",
        "A page of tasks. `next` is the cursor of the next page; null on the last.",
        "version: integer, run: string, event: integer, now_s: number, matching: integer, \
         tasks: [TaskStatus], next: string?",
    ),
    schema(
        "TaskStatus",
        "Where a task stands. A query for certain fields gets these alone.",
        "name: string, stage: string, step: integer, steps: integer?, loss: number?, \
         evaluation: any, best: any, goal: any, value: number?, technique: string?, gpus: \
         integer?, knobs: any, gpu_type: string?, devices: [DevicesOn], attempt: integer?, stopping: \
         string?, attempts: integer, added_s: number, started_s: number?, \
         expected_start_s: number?, expected_end_s: number?, expected_end_band_s: \
         [number]?, ended_s: number?, train_s: number?, priority: integer, deadline_s: \
         number?, due?: string, is_late: boolean?, release_s: number, after: [string], error: string?, \
         lacks_devices: boolean, is_rest?: boolean, start_step?: integer, \
         is_held?: boolean, dir: string, owner?: string",
    ),
    schema(
        "Task",
        "A task and why it is where it is.",
        "version: integer, run: string, event: integer, task: TaskStatus, explanation: \
         Explanation",
    ),
    schema(
        "Explanation",
        "Why a task is where it is, as `saturn explain --json` prints it. The first reason is the \
         decisive one.",
        "version: integer, task: string?, now_s: number, reasons: [Reason], \
         expected_start_s: number?, expected_end_s: number?, expected_end_band_s: \
         [number]?, deadline_s: number?, due?: string, is_late: boolean?, candidates: \
         [Candidate], moves: [Move], traceback?: string, log?: string",
    ),
    schema(
        "Reason",
        "A reason: a code that does not change, and a sentence.",
        "code: string, sentence: string, tasks?: [string], until_s?: number",
    ),
    schema(
        "Candidate",
        "A strategy that the task has or could have.",
        "technique: string, gpus: integer, gpu_type: string, step_s: number?, \
         is_estimate: boolean, peak_memory_bytes: integer?, least_memory_bytes: integer?, \
         time_s: number?, slower_s: number?, slower_share: number?, device_s: number?, \
         code: string, sentence: string",
    ),
    schema(
        "Move",
        "A task continued under another strategy or on other devices.",
        "at_s: number, stood_still_s: number, from: string, to: string, promised_gain_s: \
         number?, undone_s?: number, code: string, sentence: string",
    ),
    schema(
        "Logs",
        "A part of what a task's workers printed.",
        "version: integer, run: string, task: string, log: LogPart",
    ),
    schema(
        "LogPart",
        "The part, and which other parts there are.",
        "attempts: [LogAttempt], attempt: integer?, ranks: [integer], rank: integer?, \
         from: integer, to: integer, size: integer, text: string",
    ),
    schema(
        "LogAttempt",
        "An attempt that has logs.",
        "attempt: integer, is_training: boolean, strategy: string",
    ),
    schema(
        "Plan",
        "The plan in force; null before there is one.",
        "version: integer, run: string, plan: PlanInForce?",
    ),
    schema(
        "PlanInForce",
        "A plan as it was adopted. The status of a task has what is expected now.",
        "at_s: number, source: any, status: string, makespan_s: number, lower_bound_s: \
         number?, solve_s: number, places: [Place]",
    ),
    schema(
        "Place",
        "The place of a task in a plan.",
        "task: string, technique: string, gpus: integer, devices: [DevicesOn], start_s: \
         number, end_s: number, share: number, until_step: integer?, is_estimate: boolean",
    ),
    schema(
        "Event",
        "The data of an event: a record of the run's journal, in words. Later versions may have \
         further kinds.",
        "version: integer, event: integer, at_s: number, kind: string, task: string?, \
         text: string",
    ),
    schema(
        "Command",
        "A command: cancel, pause, unpause or wish, with a task; take_back, with a node; close; \
         stop. A wish has a priority, a deadline, a release or tasks to come after.",
        "command: string, task?: string, priority?: integer, deadline_s?: number, \
         no_deadline?: boolean, release_s?: number, after?: [string], node?: string, \
         devices?: [integer], at_once?: boolean",
    ),
];

/// A schema as JSON Schema.
pub(crate) fn schema_of(schema: &Schema) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields(schema) {
        properties.insert(field.name.to_owned(), kind(field.kind));
        if field.is_required {
            required.push(field.name);
        }
    }
    json!({
        "type": "object", "description": schema.about, "properties": properties,
        "required": required,
    })
}

/// A field of a schema.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) is_required: bool,
}

/// The fields of a schema.
pub(crate) fn fields(schema: &Schema) -> impl Iterator<Item = Field> + use<> {
    schema.fields.split(", ").map(|field| {
        let (name, kind) = field.split_once(": ").unwrap_or((field, "any"));
        match name.strip_suffix('?') {
            Some(name) => Field { name, kind, is_required: false },
            None => Field { name, kind, is_required: true },
        }
    })
}

fn kind(text: &str) -> Value {
    if let Some(inner) = text.strip_suffix('?') {
        return json!({"anyOf": [kind(inner), {"type": "null"}]});
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return json!({"type": "array", "items": kind(inner)});
    }
    match text {
        "any" => json!({}),
        // Losses and metrics need not be finite.
        "number" => json!({"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}),
        "string" | "integer" | "boolean" => json!({"type": text}),
        name => json!({"$ref": format!("#/components/schemas/{name}")}),
    }
}

/// What of a value is not as a schema says; empty if all of it is.
#[cfg(test)]
pub(crate) fn offences(value: &Value, of: &str) -> Vec<String> {
    let mut found = Vec::new();
    compare(value, of, of, &mut found);
    found
}

#[cfg(test)]
fn compare(value: &Value, of: &str, at: &str, found: &mut Vec<String>) {
    if let Some(inner) = of.strip_suffix('?') {
        if !value.is_null() {
            compare(value, inner, at, found);
        }
        return;
    }
    if let Some(inner) = of.strip_prefix('[').and_then(|of| of.strip_suffix(']')) {
        match value.as_array() {
            Some(all) => all.iter().for_each(|one| compare(one, inner, at, found)),
            None => found.push(format!("{at} is no list: {value}")),
        }
        return;
    }
    let is_right = match of {
        "any" => true,
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number() || ["nan", "inf", "-inf"].iter().any(|one| value == one),
        name => {
            let schema = SCHEMAS.iter().find(|schema| schema.name == name);
            let (Some(schema), Some(object)) = (schema, value.as_object()) else {
                found.push(format!("{at} is no {name}: {value}"));
                return;
            };
            for field in fields(schema) {
                match object.get(field.name) {
                    Some(value) => {
                        compare(value, field.kind, &format!("{at}.{}", field.name), found);
                    }
                    None if field.is_required => found.push(format!("{at}.{} lacks", field.name)),
                    None => {}
                }
            }
            for name in object.keys() {
                if !fields(schema).any(|field| field.name == name) {
                    found.push(format!("{at}.{name} is not in the schema"));
                }
            }
            true
        }
    };
    if !is_right {
        found.push(format!("{at} is no {of}: {value}"));
    }
}
