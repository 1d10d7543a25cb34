//! Every route, with who may use it and what it takes and answers.
//!
//! The router, the description of the API and the tests of logins are made from [`ROUTES`], so that
//! none of them can forget a route.

/// What a request does. `HEAD` is answered where `GET` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads.
    Get,
    /// Changes something.
    Post,
    /// Removes something.
    Delete,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody who reaches the server: it tells nothing.
    Open,
    /// Whoever wants to log in. The request must not come from a page of another site.
    Login,
    /// The same, by the form of a page: a browser says which page it comes from.
    Form,
    /// Who is logged in, by cookie or token.
    Read,
    /// The same; and the request must be JSON with [`HEADER`], and must not come
    /// from a page of another site.
    Write,
}

/// The handler of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    /// The page of all runs.
    RunsPage,
    /// The page of a run.
    RunPage,
    /// The page of a task.
    TaskPage,
    /// The page to log in.
    LoginPage,
    /// Logs a browser in that runs no script.
    LoginForm,
    /// The description of the API.
    OpenApi,
    /// Logs a browser in.
    LogIn,
    /// Logs a browser out.
    LogOut,
    /// The numbers of runs, for Prometheus.
    Metrics,
    /// The list of runs.
    Runs,
    /// Where a run stands.
    Run,
    /// The tasks of a run.
    Tasks,
    /// A task and why it is where it is.
    Task,
    /// The output of a task's workers.
    Logs,
    /// The plan in force.
    Plan,
    /// The events of a run.
    Events,
    /// Changes a run.
    Command,
}

/// A parameter of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// What it does.
    pub about: &'static str,
}

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// What it does.
    pub verb: Verb,
    /// Its path; names in braces are parameters.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// Its handler.
    pub handler: Handler,
    /// What it answers, in a line.
    pub about: &'static str,
    /// The parameters of its query.
    pub query: &'static [Parameter],
    /// The name of the schema of its answer; empty for a page.
    pub answer: &'static str,
}

impl Route {
    /// Whether it answers programs, and is described for them; otherwise it is a page.
    pub fn is_for_programs(&self) -> bool {
        !self.answer.is_empty()
    }
}

/// The header that every request needs that changes something. A page of another site can't send
/// it without asking first, and is then refused.
pub const HEADER: &str = "x-saturn";
/// The header with the key of a command: a command that is sent again with its key is not carried
/// out again.
pub const KEY_HEADER: &str = "idempotency-key";
/// The [`Route::answer`] of what is text, not JSON.
pub const METRICS: &str = "Metrics";
/// The beginning of the paths of the API.
pub const API: &str = "/api/v1";

const fn parameter(name: &'static str, kind: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind, about }
}

const fn get(
    path: &'static str,
    handler: Handler,
    answer: &'static str,
    about: &'static str,
) -> Route {
    let (verb, access, query): (_, _, &[Parameter]) = (Verb::Get, Access::Read, &[]);
    Route { verb, path, access, handler, about, query, answer }
}

/// All routes.
pub const ROUTES: &[Route] = &[
    get("/", Handler::RunsPage, "", "The page of all runs."),
    get("/runs/{run}", Handler::RunPage, "", "The page of a run."),
    get("/runs/{run}/tasks/{task}", Handler::TaskPage, "", "The page of a task."),
    Route { access: Access::Open, ..get("/login", Handler::LoginPage, "", "The page to log in.") },
    Route {
        verb: Verb::Post,
        access: Access::Form,
        ..get("/login", Handler::LoginForm, "", "Log a browser in that runs no script.")
    },
    get("/api/v1/openapi.json", Handler::OpenApi, "OpenApi", "This description."),
    Route {
        verb: Verb::Post,
        path: "/api/v1/session",
        access: Access::Login,
        handler: Handler::LogIn,
        about: "Log a browser in by the token: the answer sets a cookie.",
        query: &[],
        answer: "Done",
    },
    Route {
        verb: Verb::Delete,
        path: "/api/v1/session",
        access: Access::Write,
        handler: Handler::LogOut,
        about: "Log this browser out.",
        query: &[],
        answer: "Done",
    },
    get(
        "/metrics",
        Handler::Metrics,
        METRICS,
        "The numbers of all runs that go on, in Prometheus' text format.",
    ),
    get("/api/v1/runs", Handler::Runs, "Runs", "All runs: the pool first, then the newest."),
    get(
        "/api/v1/runs/{run}",
        Handler::Run,
        "Run",
        "Where a run stands: what `saturn status --json` prints, without the tasks.",
    ),
    Route {
        query: &[
            parameter("cursor", "string", "The `next` of the page before."),
            parameter(
                "limit",
                "integer",
                "The most tasks of a page, at most 1000; 100 by default.",
            ),
            parameter("stage", "string", "Only tasks at these stages, joined by commas."),
            parameter("name", "string", "Only tasks whose names contain this."),
            parameter("fields", "string", "Only these fields of each task, joined by commas."),
        ],
        ..get("/api/v1/runs/{run}/tasks", Handler::Tasks, "Tasks", "The tasks of a run, in pages.")
    },
    get(
        "/api/v1/runs/{run}/tasks/{task}",
        Handler::Task,
        "Task",
        "A task, and why it is where it is: what `saturn explain --json` prints.",
    ),
    Route {
        query: &[
            parameter("attempt", "integer", "Of this attempt; by default the newest."),
            parameter("rank", "integer", "Of this rank; by default the lowest."),
            parameter("from", "integer", "From this byte on; without it, the end of the log."),
            parameter(
                "bytes",
                "integer",
                "At most so many bytes, at most 1 MiB; 65536 by default.",
            ),
        ],
        ..get(
            "/api/v1/runs/{run}/tasks/{task}/logs",
            Handler::Logs,
            "Logs",
            "A part of what a task's workers printed. `to` is the `from` of the next part.",
        )
    },
    get(
        "/api/v1/runs/{run}/plan",
        Handler::Plan,
        "Plan",
        "The plan in force. It has an `ETag`, and `If-None-Match` is answered by 304 while no \
         other plan is adopted.",
    ),
    Route {
        query: &[parameter("after", "integer", "Events after this number; by default new ones.")],
        ..get(
            "/api/v1/runs/{run}/events",
            Handler::Events,
            "Event",
            "The events of a run, as server-sent events whose ids are numbers in its journal. \
             `resync` says that events are missing: read the status anew. `progress` says that \
             the run's clock goes on.",
        )
    },
    Route {
        verb: Verb::Post,
        path: "/api/v1/runs/{run}/commands",
        access: Access::Write,
        handler: Handler::Command,
        about: "Carry out a command. The answer comes once the run's journal has it.",
        query: &[],
        answer: "Done",
    },
];
