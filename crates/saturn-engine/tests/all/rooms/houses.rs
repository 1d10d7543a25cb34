//! The crates whose sources stand in rooms, and their rooms.

/// The source of a crate whose files stand in rooms.
pub(super) struct House {
    /// The crate's folder.
    pub(super) name: &'static str,
    /// From the ground up.
    pub(super) rooms: &'static [&'static str],
    /// Whether a call of a method counts as a use of the file that defines it. Not where many
    /// methods have names that types of other crates have too.
    pub(super) follows_calls: bool,
    /// The highest room in which each of these types may have methods: rooms above are functions,
    /// which are handed what they need.
    pub(super) methods_up_to: &'static [(&'static str, &'static str)],
}

pub(super) const ENGINE: House = House {
    name: "saturn-engine",
    rooms: &[
        "facts",
        "state",
        "knowledge",
        "changes",
        "ledger",
        "forecast",
        "planning",
        "following",
        "measuring",
        "health",
        "interfaces",
        "engine",
    ],
    follows_calls: true,
    methods_up_to: &[("State", "changes"), ("Ledger", "ledger"), ("Engine", "engine")],
};

const VIEW: House = House {
    name: "saturn-view",
    rooms: &[
        "layout",
        "facts",
        "phrases",
        "status",
        "explain",
        "board",
        "report",
        "plans",
        "transcript",
        "terminal",
        "trace",
        "html",
    ],
    follows_calls: false,
    methods_up_to: &[("History", "facts"), ("Report", "report"), ("Transcript", "transcript")],
};

const SOLVER: House = House {
    name: "saturn-solver",
    rooms: &[
        "problem",
        "course",
        "bounds",
        "lists",
        "proof",
        "completion",
        "general",
        "exact",
        "split",
        "robust",
        "solve",
    ],
    follows_calls: false,
    methods_up_to: &[("Model", "problem"), ("Course", "course"), ("Lists", "lists")],
};

const RUNTIME: House = House {
    name: "saturn-runtime",
    rooms: &[
        "system",
        "devices",
        "keeping",
        "launching",
        "asking",
        "run_files",
        "probing",
        "cluster",
        "outliving",
        "answering",
        "opening",
        "driving",
    ],
    follows_calls: false,
    methods_up_to: &[],
};

const SIM: House = House {
    name: "saturn-sim",
    rooms: &[
        "workloads",
        "world",
        "solving",
        "driving",
        "cases",
        "policies",
        "replaying",
        "judge",
        "watch",
        "fuzz",
        "studies",
    ],
    follows_calls: false,
    methods_up_to: &[("World", "world"), ("Simulation", "driving"), ("Case", "cases")],
};

const SERVE: House = House {
    name: "saturn-serve",
    rooms: &["answers", "local", "hooks", "http", "tests"],
    follows_calls: false,
    methods_up_to: &[],
};

pub(super) const HOUSES: [House; 6] = [ENGINE, VIEW, SOLVER, RUNTIME, SIM, SERVE];
